"""Foreign code decides nothing: what it calls is right whatever the state of the interpreter is.

torch lets the interpreter's lock go inside a tensor's destructor, so a deleter of ours that it
calls there runs without the lock, in the midst of a call that began with it. Each way in is called
in each such state, in a process of its own, since what goes wrong ends the process.
"""

import pytest
from children import DEVICE, assert_quiet

CALLS = """
    import ctypes, gc, weakref
    from ctypes import c_int, c_int32, c_void_p
    from capsules import HandMade

    WITH = ctypes.PYFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
    WITHOUT = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
    DELETER = ctypes.CFUNCTYPE(None, c_void_p)
    libc = ctypes.CDLL(None)

    def held(address, *arguments):
        "Call with the lock."
        return WITH(address)(*arguments)

    def let_go(address, *arguments):
        "Call without it, as ctypes does it."
        return WITHOUT(address)(*arguments)

    def nested(depth):
        "Call without it, inside as many ends of the bridge."
        def call(address, *arguments):
            answers = []
            def delete(_, call=let_go if depth == 1 else nested(depth - 1)):
                answers.append(call(address, *arguments))
            kept = DELETER(delete)
            tensor = HandMade(x.ptr)
            tensor.struct.deleter = ctypes.cast(kept, c_void_p).value
            view = to_cai(tensor.capsule())
            del view
            # An end inside an end follows the outer one.
            return answers[0] if answers else None
        return call

    def in_a_foreign_thread(address, *arguments):
        "Call in a thread that has never seen the interpreter."
        thread = ctypes.c_ulong()
        started = c_void_p(address), c_void_p(arguments[0])
        assert libc.pthread_create(ctypes.byref(thread), None, *started) == 0
        assert libc.pthread_join(thread, None) == 0

    def while_unwinding(address, *arguments):
        "Call as an exception passes through."
        class Last:
            def __del__(self):
                let_go(address, *arguments)
        def leave():
            last = Last()
            raise LookupError("on its way")
        try:
            leave()
        except LookupError as error:
            assert str(error) == "on its way"
            error.__traceback__ = None
        gc.collect()
"""

STATES = """
    STATES = held, let_go, nested(1), nested(3), in_a_foreign_thread, while_unwinding
"""
LOGGED = """
    import logging
    logging.basicConfig(level=logging.DEBUG, stream=open("/dev/null", "w"))
"""


@pytest.mark.parametrize("logging", ["", LOGGED], ids=["quiet", "logged"])
@pytest.mark.parametrize("form", ["(1, 3)", "None", "'exchange'", "'copy'"])
def test_a_deleter_is_called_in_each_state(form, logging):
    assert_quiet(
        DEVICE,
        CALLS,
        STATES,
        logging,
        f"""
        form, gone = {form}, weakref.ref(x)
        for state in STATES * 3:
            view = from_cai(x)
            if form == "exchange":
                taken = tables.managed(view)
            else:
                copy = {{"copy": True}} if form == "copy" else {{}}
                version = None if form == "copy" else form
                taken = capsules.take(view.__dlpack__(max_version=version, **copy))
            del view
            taken.give_away()
            state(taken.struct.deleter, ctypes.addressof(taken.struct), None, None)
            cuda.synchronize()
            assert x.exports == 0, state
        # nested() has made tensors of the same memory, which are gone as well.
        capsules.forget()
        del x
        gc.collect()
        assert gone() is None
        assert cuda.reports == []
        """,
    )


@pytest.mark.parametrize(
    "call",
    [
        "managed_tensor_from_py_object_no_sync",
        "dltensor_from_py_object_no_sync",
        "current_work_stream",
        "managed_tensor_to_py_object_no_sync",
    ],
)
def test_a_function_of_the_exchange_table_is_called_in_each_state(call):
    assert_quiet(
        DEVICE,
        CALLS,
        STATES,
        f"""
        call, view = {call!r}, from_cai(x)
        function = getattr(tables.of(DLPackView), call)
        # A thread's first function takes one argument.
        for state in (one for one in STATES if one is not in_a_foreign_thread):
            out = (ctypes.c_char * 48)()
            if "from" in call:
                arguments = id(view), ctypes.addressof(out), None
            elif call == "current_work_stream":
                arguments = 2, 0, ctypes.addressof(out)
            else:
                tensor = HandMade(x.ptr)
                arguments = tensor.hand_out(), ctypes.addressof(out), None
            code = state(function, *arguments)
            assert code in (0, None), (code, state)
            first = c_void_p.from_buffer(out).value
            if call == "managed_tensor_from_py_object_no_sync":
                deleter = ctypes.cast(first + 16, ctypes.POINTER(c_void_p))[0]
                DELETER(deleter)(first)
            elif call == "managed_tensor_to_py_object_no_sync":
                ctypes.pythonapi.Py_DecRef(c_void_p(first))
                assert tensor.deleted == 1
            else:
                assert first == (1 if call == "current_work_stream" else x.ptr)
        """,
    )


def test_an_end_inside_an_end_of_a_thread_that_has_put_its_queue_away():
    assert_quiet(
        DEVICE,
        """
        import ctypes, threading, time, weakref
        libc, gone = ctypes.CDLL(None), []
        at_exit = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        class Owner:
            def __init__(self, inner=None):
                self.__cuda_array_interface__ = x.__cuda_array_interface__
                self.inner = inner

        def nest():
            inner = Owner()
            return [to_cai(Owner(to_cai(inner)))], weakref.ref(inner)

        def work():
            outer, inner = nest()
            later = at_exit(lambda _: (outer.clear(), gone.append(inner() is None)))
            kept.append(later)
            libc.__cxa_thread_atexit_impl(later, None, None)
            # What the thread keeps for ends inside ends is made after that, and so goes before.
            before, inner_before = nest()
            before.clear()
            assert inner_before() is None

        kept = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        # Python's thread is over, and what it keeps by itself may be just going.
        until = time.monotonic() + 30
        while not gone and time.monotonic() < until:
            time.sleep(0.01)
        assert gone == [True], gone
        """,
    )
