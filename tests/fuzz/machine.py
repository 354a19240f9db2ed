"""The state machine: calls of the bridge, what happens inside, and what has to hold after each."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import deque
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cai_bridge import CaiView, DLPackView, DriverError, convert, from_cai, to_cai
from cai_bridge.testing import simulated_cuda
from cai_bridge.testing._kit.dlpack_abi import take

from ..soak.device.strangers import renamed
from .objects import SHAPES, Producer, SpeaksCai, SpeaksDLPack, Stream

REFUSALS = (ValueError, BufferError, TypeError, DriverError)
FACTS = ("shape", "strides", "typestr", "ptr", "readonly", "device", "itemsize", "nbytes")
STREAMS = ["none", "legacy", "no order", "handle", "object"]
ACTS = [
    "nothing",
    "release",
    "drop views",
    "bridge again",
    "delete a tensor",
    "change the layout",
    "clear the dict",
    "go",
    "collect",
    "raise",
    "interrupt",
    "be forgotten",
    "name no stream",
    "say another device",
]


class FromAfarError(Exception):
    """What a producer raises."""


class Interrupt(BaseException):
    """What is no answer."""


def bounded(examples, *phases):
    """That many programs; what fails is cut down unless only some `phases` are wanted."""
    return settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        database=None,
        phases=phases or (Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


class Bridging(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        self.cuda = self.stack.enter_context(simulated_cuda(devices=1))
        self.side = self.cuda.stream(blocking=False)
        self.arrays: list[Any] = []
        self.born: list[weakref.ref[Producer]] = []
        self.producers: list[Producer] = []
        # Each view that is not released, with what it said first and who has to live as long.
        self.views: list[tuple[Any, tuple[Any, ...], weakref.ref[Producer]]] = []
        self.tensors: list[tuple[Any, weakref.ref[Producer]]] = []
        self.acts: deque[str] = deque()
        self.inside = False
        self.raised: BaseException | None = None

    def act(self, producer):
        if self.inside or not self.acts:
            return
        self.inside = True
        try:
            self.do(self.acts.popleft(), producer)
        finally:
            self.inside = False

    def do(self, act, producer):
        match act:
            case "release":
                for view, _, _ in self.forget(self.views):
                    view.release()
            case "drop views":
                self.forget(self.views)
            case "bridge again":
                self.bridged(producer, None)
            case "delete a tensor":
                for tensor, _ in self.forget(self.tensors):
                    tensor.delete()
            case "change the layout":
                at = SHAPES.index(producer.layout)
                producer.layout = SHAPES[(at + 1) % len(SHAPES)]
                if isinstance(producer, SpeaksCai):
                    producer.entries.update(producer.made())
            case "clear the dict" if isinstance(producer, SpeaksCai):
                producer.entries.clear()
            case "go":
                producer.gone = True
            case "collect":
                gc.collect()
            case "raise" | "interrupt":
                error = FromAfarError() if act == "raise" else Interrupt()
                self.raised = self.raised or error
                raise error
            case "name no stream":
                producer.names = not producer.names
                if isinstance(producer, SpeaksCai):
                    producer.entries.update(producer.made())
            case "say another device":
                producer.lies = not producer.lies
            case "be forgotten":
                self.producers = [other for other in self.producers if other is not producer]

    @staticmethod
    def forget(items):
        taken = items[:]
        items.clear()
        return taken

    def call(self, acts, call, *, asks_again=False, again=False):
        """What `call` returns; None where it is refused, or raises what was raised inside.

        A producer that raises at -1 is asked again, for the legacy default stream.
        """
        self.acts, self.raised, came = deque(acts), None, None
        answer = None
        try:
            answer = call()
        except (FromAfarError, Interrupt, *REFUSALS) as error:
            came = error
        self.acts.clear()
        raised, self.raised = self.raised, None
        # A stream object that is asked again and fails vouches for nothing: the host waits.
        # So does a producer whose dict named its stream before.
        by_voucher = getattr(raised, "by_stream", False) or (
            isinstance(raised, FromAfarError) and again
        )
        if by_voucher and not isinstance(came, FromAfarError):
            raised = None
        if asks_again and not isinstance(raised, Interrupt):
            raised = came if isinstance(came, FromAfarError | Interrupt) else None
        # One that is gone said so first; whether it is on the host is asked for the message alone.
        was_gone = isinstance(came, BufferError) and came.args == ("gone",)
        if was_gone and isinstance(raised, FromAfarError):
            raised = None
        assert raised is None or came is raised, "what a producer raises first passes through"
        assert raised is not None or not isinstance(came, FromAfarError | Interrupt)
        if came is not None:
            # Its frames would hold what the bridge has let go.
            came.__traceback__ = None
        return answer

    def bridged(self, producer, stream, by="view"):
        """The view of a producer, kept with what it said first."""
        make, to = (from_cai, "dlpack") if isinstance(producer, SpeaksCai) else (to_cai, "cai")
        try:
            if by == "view":
                view = make(producer, stream)
            elif by == "convert":
                view = convert(producer, to, stream=stream)
            else:
                ((view, _),) = convert([(producer, "x")], to, stream=stream)
        except REFUSALS:
            if not self.inside:
                raise
        else:
            self.keep(view, producer)

    def keep(self, view, producer):
        self.views.append((view, self.facts(view), weakref.ref(producer)))

    @staticmethod
    def facts(view):
        return tuple(getattr(view, name) for name in FACTS)

    def stream(self, word, producer):
        return {
            "none": None,
            "legacy": 1,
            "no order": -1,
            "handle": self.side.handle,
            "object": Stream(self.side.handle, producer),
        }[word]

    acts_drawn = st.lists(st.sampled_from(ACTS), max_size=5)
    index = st.integers(0, 7)

    @rule(cai=st.booleans(), numbers=st.booleans(), keys=st.booleans(), anew=st.booleans())
    def produce(self, cai, numbers, keys, anew):
        array = self.cuda.array([1.0, 2.0, 3.0, 4.0], speaks="dlpack")
        self.cuda.synchronize()
        producer: Producer
        if cai:
            producer = SpeaksCai(array, self.act, numbers=numbers, keys=keys, anew=anew)
        else:
            producer = SpeaksDLPack(array, self.act)
        self.arrays.append(array)
        self.born.append(weakref.ref(producer))
        self.producers.append(producer)

    @precondition(lambda self: self.producers)
    @rule(
        at=index,
        word=st.sampled_from(STREAMS),
        acts=acts_drawn,
        by=st.sampled_from(["view", "view", "view", "convert", "tree"]),
    )
    def bridge(self, at, word, acts, by):
        producer = self.producers[at % len(self.producers)]
        asks_again = word == "no order" and not isinstance(producer, SpeaksCai)
        call = lambda: self.bridged(producer, self.stream(word, producer), by)  # noqa: E731
        # An exporter is asked again in the same call, where it may have moved.
        again = isinstance(producer, SpeaksCai) and acts[:1] != ["raise"]
        self.call(acts, call, asks_again=asks_again, again=again)

    @precondition(lambda self: self.views)
    @rule(at=index, word=st.sampled_from(STREAMS), acts=acts_drawn)
    def bridge_a_view(self, at, word, acts):
        """The view of a view is for the same producer, and says the same."""
        view, facts, producer = self.views[at % len(self.views)]
        other = from_cai if isinstance(view, CaiView) else to_cai
        stream = self.stream(word, producer())
        made = self.call(acts, lambda: other(view, stream), again=True)
        if made is not None:
            assert self.facts(made) == facts
            self.keep(made, producer())

    @precondition(lambda self: self.views)
    @rule(at=index, word=st.sampled_from(STREAMS), acts=acts_drawn)
    def hand_out(self, at, word, acts):
        view, facts, producer = self.views[at % len(self.views)]
        if isinstance(view, DLPackView):
            stream = self.stream(word, producer())
            stream = stream.handle if isinstance(stream, Stream) else stream
            owner = producer()
            capsule = self.call(
                acts, lambda: view.__dlpack__(stream=stream, max_version=(1, 0)), again=True
            )
            if capsule is not None:
                taken = take(capsule)
                # Whatever a consumer calls it from then on.
                renamed(capsule, taken.fields.name, len(self.tensors))
                self.tensors.append((taken, weakref.ref(owner)))
        else:
            entries = self.call(acts, lambda: view.__cuda_array_interface__, again=True)
            if entries is not None:
                said = (entries["shape"], entries["typestr"], entries["data"][0])
                assert said == (facts[0], facts[2], facts[3])

    @precondition(lambda self: self.views)
    @rule(at=index, word=st.sampled_from(STREAMS), acts=acts_drawn)
    def release(self, at, word, acts):
        """Released, or refused and as it was; a second release is nothing."""
        view, facts, producer = self.views.pop(at % len(self.views))
        stream = self.stream(word, producer())
        done = self.call(acts, lambda: (view.release(stream), True), again=True)
        if done is None and self.facts_of_leased(view) is not None:
            self.views.append((view, facts, producer))
        else:
            view.release()

    @staticmethod
    def facts_of_leased(view):
        try:
            return view.__dlpack_device__() if isinstance(view, DLPackView) else view.owner
        except BufferError:
            return None

    @precondition(lambda self: self.views)
    @rule(at=index)
    def drop(self, at):
        self.views.pop(at % len(self.views))

    @precondition(lambda self: self.tensors)
    @rule(at=index)
    def delete(self, at):
        self.tensors.pop(at % len(self.tensors))[0].delete()

    @precondition(lambda self: self.producers)
    @rule(at=index)
    def forget_a_producer(self, at):
        self.producers.pop(at % len(self.producers))

    @invariant()
    def views_say_what_they_said(self):
        for view, facts, _ in self.views:
            assert self.facts(view) == facts

    @invariant()
    def memory_is_kept_for_whoever_has_it(self):
        for producer in [kept[-1]() for kept in (*self.views, *self.tensors)]:
            assert producer is not None, "gone before its view"
            assert isinstance(producer, SpeaksCai) or producer.array.exports >= 1

    @invariant()
    def the_device_has_nothing_to_report(self):
        self.cuda.check()

    def teardown(self):
        try:
            self.acts.clear()
            for tensor, _ in self.forget(self.tensors):
                tensor.delete()
            self.forget(self.views)
            self.forget(self.producers)
            gc.collect()
            self.cuda.synchronize()
            # Those whose consumer had to be waited for go with the next call.
            to_cai(self.cuda.array([0.0])).release(-1)
            gc.collect()
            assert [born() for born in self.born if born() is not None] == []
            assert [array.exports for array in self.arrays if array.exports] == []
        finally:
            self.stack.close()
