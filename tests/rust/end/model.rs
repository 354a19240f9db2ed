//! What comes before what once a plan is carried out: streams, events and CUDA's own order of the legacy default stream.

use cai_bridge::capture::{CaptureStatus, Direction, Route, route};
use cai_bridge::lease::Parties;
use cai_bridge::lease::end_rules::{Found, Lost, Next, Plan, Role};
use cai_bridge::stream::{Alive, Stream, between};

use super::Facts;
use crate::alive::HERE;

/// A stream of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// The legacy default stream of a GPU.
    Legacy(i32),
    /// A blocking stream that nobody can name, on which a user works; and one on which somebody else goes on.
    Blocking(i32, bool),
    /// A non-blocking stream.
    Handle(u64),
}

/// Which of the handles are being captured, and whether a blocking stream is that nobody named.
#[derive(Debug, Clone, Copy)]
pub struct Captures {
    parts: [(u64, u64); 2],
    beside: bool,
}

impl Captures {
    pub const NONE: Self = Self { parts: [(7, 0), (8, 0)], beside: false };

    /// Those that make a difference to some streams.
    pub fn all_for(streams: &[(Role, Found<'_>)]) -> Vec<Self> {
        let has = |handle| streams.iter().any(|(_, found)| names(found, Stream::Handle(handle)));
        let mut all = vec![Self { beside: true, ..Self::NONE }];
        for (seven, eight) in [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)] {
            if (seven != 0 && !has(7)) || (eight != 0 && !has(8)) {
                continue;
            }
            all.push(Self { parts: [(7, seven), (8, eight)], beside: false });
        }
        all
    }

    fn of(self, node: Node) -> CaptureStatus {
        match node {
            Node::Handle(handle) => match self.parts.iter().find(|(known, _)| *known == handle) {
                Some((_, capture)) if *capture != 0 => CaptureStatus::Inside(*capture),
                _ => CaptureStatus::Outside,
            },
            Node::Legacy(_) if self.beside => CaptureStatus::Beside,
            _ => CaptureStatus::Outside,
        }
    }
}

/// Some streams of the world, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Nodes(u16);

impl Nodes {
    fn of(all: impl IntoIterator<Item = Node>) -> Self {
        all.into_iter().fold(Self::default(), |some, node| some.and(node.into()))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn contains(self, node: Node) -> bool {
        self.0 & Self::from(node).0 != 0
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = Node> {
        NODES.into_iter().filter(move |node| self.contains(*node))
    }
}

impl From<Node> for Nodes {
    fn from(node: Node) -> Self {
        Self(1 << node.index())
    }
}

/// The stream that is named, and the one for which it stands in.
fn nodes(alive: Alive<'_>, goes_on: bool) -> (Node, Node) {
    let place = alive.place().ordinal;
    match alive.stream() {
        Stream::Handle(handle) => (Node::Handle(handle), Node::Handle(handle)),
        _ if alive.stands_in() => (Node::Legacy(place), Node::Blocking(place, goes_on)),
        _ => (Node::Legacy(place), Node::Legacy(place)),
    }
}

/// All streams of the world, in the order of their bits.
const NODES: [Node; 9] = [
    Node::Handle(7),
    Node::Handle(8),
    Node::Handle(9),
    Node::Legacy(0),
    Node::Blocking(0, false),
    Node::Blocking(0, true),
    Node::Legacy(1),
    Node::Blocking(1, false),
    Node::Blocking(1, true),
];

impl Node {
    /// Its place in [`NODES`].
    fn index(self) -> usize {
        match self {
            Self::Handle(handle) => handle as usize - 7,
            Self::Legacy(place) => 3 + 3 * place as usize,
            Self::Blocking(place, goes_on) => 4 + 3 * place as usize + usize::from(goes_on),
        }
    }
}

/// What the work that is queued next on each stream comes after: whose work, until now.
struct World {
    after: [Nodes; NODES.len()],
}

impl World {
    fn new() -> Self {
        Self { after: NODES.map(Nodes::from) }
    }

    /// What an event that is recorded on `node` now stands for. The legacy stream follows the blocking ones.
    fn recorded(&self, node: Node) -> Nodes {
        let mut known = self.after[node.index()];
        if let Node::Legacy(place) = node {
            for other in [Node::Blocking(place, false), Node::Blocking(place, true)] {
                known = known.and(self.after[other.index()]);
            }
        }
        known
    }

    /// `node` waits for that; blocking streams follow the legacy one, a bare wait as well.
    fn wait(&mut self, node: Node, known: Nodes) {
        let mut waiting = Nodes::from(node);
        if let Node::Legacy(place) = node {
            waiting =
                waiting.and(Nodes::of([Node::Blocking(place, false), Node::Blocking(place, true)]));
        }
        for node in waiting.iter() {
            self.after[node.index()] = self.after[node.index()].and(known);
        }
    }

    /// Whether what is queued on `next` from here on comes after the work of `user`.
    fn is_after(&self, next: Node, user: Node) -> bool {
        match next {
            // A blocking stream follows what is queued on the legacy one.
            Node::Blocking(place, _) => {
                let legacy = self.after[Node::Legacy(place).index()];
                self.after[next.index()].and(legacy).contains(user)
            }
            _ => self.recorded(next).contains(user),
        }
    }
}

/// The stream that was found, if nothing lost it.
fn alive<'a>(found: &Found<'a>) -> Option<Alive<'a>> {
    match found {
        Found::Alive(alive) | Found::Met(alive) => Some(*alive),
        Found::Lost(_) => None,
    }
}

fn names(found: &Found<'_>, stream: Stream) -> bool {
    alive(found).is_some_and(|alive| alive.stream() == stream)
}

/// What comes of the edges: the world, or `None` where one was refused, and the end is put off.
fn carried_out(
    users: &[Alive<'_>],
    producers: &[Alive<'_>],
    captures: Captures,
    host_waits: bool,
) -> Option<World> {
    let mut world = World::new();
    for user in users {
        for next in producers {
            if between(*user, *next).is_some() {
                continue;
            }
            let ((from, _), (to, _)) = (nodes(*user, false), nodes(*next, true));
            let way = route(Direction::GiveBack, captures.of(from), next.stream(), captures.of(to));
            let inside = matches!(captures.of(from), CaptureStatus::Inside(_));
            match way {
                // The host waits for what runs; what is in a graph does not.
                _ if host_waits && !inside => {}
                Route::Plain | Route::Edge | Route::External => {
                    let known = world.recorded(from);
                    world.wait(to, known);
                }
                Route::Pointless => {}
                Route::Refused(_) if host_waits => {}
                Route::Refused(_) => return None,
            }
        }
    }
    Some(world)
}

/// Where somebody may have worked on the memory.
fn possible_users(facts: &Facts<'_, '_>) -> Nodes {
    let (mut all, mut elsewhere) = (Nodes::default(), facts.is_unnamed());
    for (role, found) in facts.streams {
        if *role == Role::User {
            let user = match found {
                Found::Alive(alive) | Found::Met(alive) => nodes(*alive, false).1,
                Found::Lost(handle) => Node::Handle(*handle),
            };
            all = all.and(user.into());
            // Whoever named a stream that nothing keeps may be elsewhere by now.
            if matches!(found, Found::Met(_)) {
                elsewhere = true;
            }
        }
    }
    let at = facts.at.ordinal;
    if elsewhere {
        all = all.and(Nodes::of([Node::Legacy(at), Node::Blocking(at, false)]));
        // As long as nobody has asked, a library may work anywhere.
        all = all.and(match facts.libraries {
            Some(libraries) => Nodes::of(libraries.iter().map(|one| nodes(*one, false).1)),
            None => Node::Handle(9).into(),
        });
    }
    all
}

/// Where somebody may go on with the memory; and to which other streams that follow the producer's legacy one.
fn next_users(facts: &Facts<'_, '_>) -> [Nodes; 2] {
    let [mut named, mut passed_on] = [Nodes::default(); 2];
    for (role, found) in facts.streams {
        match (role, found) {
            (Role::User, _) => {}
            (_, Found::Alive(alive) | Found::Met(alive)) => {
                let next = nodes(*alive, true).1;
                named = named.and(next.into());
                // Whoever works there may pass the memory on to any stream that follows the legacy one.
                if let Node::Legacy(place) = next {
                    passed_on = passed_on.and(Node::Blocking(place, true).into());
                }
            }
            (_, Found::Lost(handle)) => named = named.and(Node::Handle(*handle).into()),
        }
    }
    if !is_known(facts) {
        let home = HERE.ordinal;
        named = named.and(Nodes::of([Node::Legacy(home), Node::Blocking(home, true)]));
    }
    [named, passed_on]
}

/// The producer's first stream.
fn first(facts: &Facts<'_, '_>) -> Option<Node> {
    facts.streams.iter().find_map(|(role, found)| match found {
        Found::Alive(alive) if *role == Role::Producer => Some(nodes(*alive, true).1),
        _ => None,
    })
}

fn is_known(facts: &Facts<'_, '_>) -> bool {
    first(facts).is_some()
}

/// What the page leaves to whoever passes the memory on: to name the blocking stream of a consumer that named none, where
/// the producer is on the legacy stream.
fn is_left(facts: &Facts<'_, '_>, user: Node, (next, passed_on): (Node, bool)) -> bool {
    let at = facts.at.ordinal;
    let stood_in = |(role, found): &(Role, Found<'_>)| match found {
        Found::Alive(alive) => {
            alive.place().ordinal == at
                && alive.stands_in()
                && matches!(role, Role::User | Role::Producer | Role::Upstream)
        }
        Found::Lost(_) | Found::Met(_) => false,
    };
    let met = |(_, found): &(Role, Found<'_>)| matches!(found, Found::Met(_));
    let unknown = facts.is_unnamed() || facts.streams.iter().any(met);
    unknown
        && !facts.in_call
        && passed_on
        && next == Node::Blocking(at, true)
        && user == Node::Blocking(at, false)
        && first(facts) == Some(Node::Legacy(at))
        && !facts.streams.iter().any(stood_in)
}

/// Whether nothing can touch a stream, so that no edge of a graph leads there. A user's is known by its number, what comes
/// next by its handle.
fn is_lost(facts: &Facts<'_, '_>, node: Node, is_user: bool) -> bool {
    let is = |alive: Alive<'_>| nodes(alive, false).1 == node;
    let found = facts.streams.iter().filter(|(role, _)| !is_user || *role == Role::User);
    let libraries = facts.libraries.unwrap_or_default().iter().copied();
    !found.filter_map(|(_, found)| alive(found)).chain(libraries).any(is)
}

/// Whose work is not before whose, though it has to be.
fn unordered(
    facts: &Facts<'_, '_>,
    world: &World,
    captures: Captures,
    host_waits: bool,
) -> Option<(Node, Node)> {
    let [named, passed_on] = next_users(facts);
    let nexts = || {
        let named = named.iter().map(|next| (next, false));
        named.chain(passed_on.iter().map(|next| (next, true)))
    };
    for user in possible_users(facts).iter() {
        for (next, passed_on) in nexts() {
            let is_due = match (captures.of(user), captures.of(next)) {
                // A graph runs whenever it is launched.
                (CaptureStatus::Inside(one), CaptureStatus::Inside(other)) => {
                    one == other && !is_lost(facts, user, true) && !is_lost(facts, next, false)
                }
                (CaptureStatus::Inside(_), _) => false,
                _ => !host_waits,
            };
            if is_due
                && user != next
                && !is_left(facts, user, (next, passed_on))
                && !world.is_after(next, user)
            {
                return Some((user, next));
            }
        }
    }
    None
}

/// What is wrong with a plan, if anything is.
pub fn breaks(facts: &Facts<'_, '_>, next: &Next<'_>, captures: Captures) -> Option<String> {
    let known = is_known(facts);
    let any_user = !possible_users(facts).is_empty();
    let plan = match next {
        Next::Ask(_) if facts.libraries.is_some() => return Some("asks again".into()),
        Next::Ask(_) => {
            // Not for nothing: somebody is not known, or a stream is lost.
            let mut found = facts.streams.iter().map(|(_, found)| found);
            let lost = found.any(|found| matches!(found, Found::Lost(_) | Found::Met(_)));
            let asks = any_user && (facts.is_unnamed() || lost);
            return (!asks).then(|| "asks for nothing".into());
        }
        Next::Do(plan) => plan,
    };
    match plan {
        Plan::Edge(..) => Some("an edge by itself, of streams that were found".into()),
        Plan::Nothing(_) => {
            let world = World::new();
            if !known && any_user {
                return Some("memory of an unknown producer goes at once".into());
            }
            unordered(facts, &world, captures, false).map(|pair| format!("no order of {pair:?}"))
        }
        Plan::Wait(Lost::Stream(_), _) if facts.libraries.is_none() => {
            Some("a wait of the host though a library may know the stream".into())
        }
        Plan::Wait(_, Parties { users, producers, .. }) => {
            let world = carried_out(users, producers, captures, true)?;
            if let Some(pair) = unordered(facts, &world, captures, true) {
                return Some(format!("no edge in the graph of {pair:?}"));
            }
            needless_wait(facts, known).then(|| "a wait of the host for nothing".into())
        }
        Plan::Order(Parties { users, producers, known: named }) => {
            let keep = !named;
            // Refused: it is put off, and the memory kept.
            let world = carried_out(users, producers, captures, false)?;
            if let Some(pair) = unordered(facts, &world, captures, false) {
                return Some(format!("no order of {pair:?}"));
            }
            if keep == known {
                return Some("kept for nothing, or let go".into());
            }
            let is_one =
                |user: &Alive<'_>| producers.iter().all(|next| between(*user, *next).is_some());
            if known && users.iter().all(is_one) {
                return Some("an order of nothing".into());
            }
            if keep && facts.collected {
                return Some("garbage cannot be kept".into());
            }
            if keep && let Some(user) = unmarked(facts, users) {
                return Some(format!("the memory goes before the work on {user:?} is done"));
            }
            needless(facts, users, producers, captures)
        }
    }
}

/// Whether everything could be ordered without the host.
fn needless_wait(facts: &Facts<'_, '_>, known: bool) -> bool {
    let libraries = facts.libraries.unwrap_or_default();
    let proven = |handle: u64| {
        let stream = Stream::Handle(handle);
        libraries.iter().any(|alive| alive.stream() == stream)
            || facts.streams.iter().any(|(_, found)| names(found, stream))
    };
    let is_lost = |(role, found): &(Role, Found<'_>)| match (role, found) {
        (Role::User, Found::Lost(_)) => true,
        (Role::Upstream, Found::Lost(handle)) => !proven(*handle),
        _ => false,
    };
    !facts.streams.iter().any(is_lost) && (known || !facts.collected)
}

/// Somebody's work that the marks on `users` do not stand for.
fn unmarked(facts: &Facts<'_, '_>, users: &[Alive<'_>]) -> Option<Node> {
    let world = World::new();
    let marks = users
        .iter()
        .fold(Nodes::default(), |marks, user| marks.and(world.recorded(nodes(*user, false).0)));
    possible_users(facts).iter().find(|user| !marks.contains(*user))
}

/// Whose work does not come before what is queued on `next`, or is passed on from there.
fn misses(facts: &Facts<'_, '_>, world: &World, next: Node) -> Option<Node> {
    let mut nexts = vec![(next, false)];
    if let Node::Legacy(place) = next {
        nexts.push((Node::Blocking(place, true), true));
    }
    let all = next_users(facts);
    let due = |user: Node, next: (Node, bool)| {
        all[usize::from(next.1)].contains(next.0) && user != next.0 && !is_left(facts, user, next)
    };
    possible_users(facts)
        .iter()
        .find(|user| nexts.iter().any(|next| due(*user, *next) && !world.is_after(next.0, *user)))
}

/// An edge without which all is ordered as well.
fn needless(
    facts: &Facts<'_, '_>,
    users: &[Alive<'_>],
    producers: &[Alive<'_>],
    captures: Captures,
) -> Option<String> {
    for (u, user) in users.iter().enumerate() {
        for (p, next) in producers.iter().enumerate() {
            if between(*user, *next).is_some() {
                continue;
            }
            // By itself: another edge may lead to the same by a longer way.
            let others: Vec<_> = users
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != u)
                .map(|(_, user)| *user)
                .collect();
            let world = carried_out(&others, &producers[p..=p], captures, false);
            let next = nodes(*next, true).1;
            let parts = [nodes(*user, false).0, next].map(|node| captures.of(node));
            // In a capture an edge may come to nothing, which its route decides.
            if parts.iter().all(|part| *part == CaptureStatus::Outside)
                && world.is_some_and(|world| misses(facts, &world, next).is_none())
            {
                return Some(format!("{user:?} -> {next:?} is not needed"));
            }
        }
    }
    None
}
