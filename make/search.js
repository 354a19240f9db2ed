// The manual's own search, as a browser runs it: the worker of the built site, given its index.
// node make/search.js SITE writes, for each line of the input, the pages found, best first, as a line of JSON.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const folder = path.join(site, "assets", "javascripts", "workers");
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const answers = [];
let listener;
const inside = {
  addEventListener: (_, heard) => { listener = heard; },
  console,
  postMessage: (message) => answers.push(message),
};
inside.self = inside;
vm.runInNewContext(fs.readFileSync(path.join(folder, worker), "utf8"), inside);

const SETUP = 0, QUERY = 2;
async function ask(type, data) {
  answers.length = 0;
  await listener({ data: { type, data } });
  return answers[0].data;
}

async function main() {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf8"));
  await ask(SETUP, { ...index, options: { suggest: false } });
  for (const query of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const { items } = await ask(QUERY, query);
    console.log(JSON.stringify(items.map((found) => found[0].location.split("#")[0])));
  }
}

main();
