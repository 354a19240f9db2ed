// A browser starts no worker from a file. The manual's search is one: from disk it runs in a hidden frame
// instead. Over a server nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.tell(this, data));
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = resolve;
        inside.document.body.append(script);
      });
    }

    tell(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target.onmessage) target.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => this.tell(this.frame.contentWindow, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
