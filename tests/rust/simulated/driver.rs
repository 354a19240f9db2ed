//! The driver's calls: contexts, dead streams, faults, the log.

use std::sync::Arc;
use std::thread;

use cai_bridge::device::MemoryKind;
use cai_bridge::driver::copies::{Copies, CopyRoute};
use cai_bridge::driver::host::HostMemory;
use cai_bridge::driver::ipc::Ipc;
use cai_bridge::driver::simulated::{
    Call, CallArguments, CaptureMode, FaultError, LOGGED, Outcome, ReportKind, Simulated, codes,
};
use cai_bridge::driver::{Context, Driver, Event};
use cai_bridge::stream::{Stream, Thread};

use super::copies::{bytes, rows};
use super::processes::Other;
use super::{LENGTH, Machine, code};
use crate::alive::{alive, calls};

#[test]
fn contexts_are_a_stack_of_each_thread_that_starts_with_the_primary_one_of_device_0() {
    let cuda = Simulated::new(2);
    let primary = |ordinal| cuda.primary_context(ordinal).unwrap();
    assert_eq!(cuda.current_context().unwrap(), Some(primary(0)));
    cuda.set_device(1).unwrap();
    assert_eq!(cuda.current_context().unwrap(), Some(primary(1)));
    let other = cuda.create_context(0).unwrap();
    cuda.push_context(other).unwrap();
    assert_eq!(cuda.current_context().unwrap(), Some(other));
    assert_eq!(cuda.current_ordinal().unwrap(), 0);
    cuda.pop_context().unwrap();
    assert_eq!(cuda.current_ordinal().unwrap(), 1);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(cuda.current_ordinal().unwrap(), 0));
    });
    let unknown = Context(77.try_into().unwrap());
    assert_eq!(code(cuda.push_context(unknown)), codes::INVALID_CONTEXT);
    assert_eq!(code(cuda.create_stream_in(unknown, true)), codes::INVALID_CONTEXT);
}

#[test]
fn without_a_context_what_needs_one_is_refused() {
    let m = Machine::new();
    let event = m.cuda.create_event().unwrap();
    m.cuda.pop_context().unwrap();
    assert_eq!(m.cuda.current_context().unwrap(), None);
    let refused = [
        code(m.cuda.pop_context()),
        code(m.cuda.current_ordinal()),
        code(m.cuda.create_event()),
        code(m.cuda.record_on(event, Stream::Legacy)),
        code(m.cuda.synchronize_context()),
    ];
    assert_eq!(refused, [codes::INVALID_CONTEXT; 5]);
    m.cuda.record_on(event, m.stream(false)).unwrap();
    m.cuda.set_device(0).unwrap();
    m.cuda.unset_device();
    assert_eq!(m.cuda.current_context().unwrap(), None);
}

#[test]
fn a_machine_without_devices_has_no_context() {
    let cuda = Simulated::new(0);
    assert_eq!(cuda.current_context().unwrap(), None);
    let refused = [
        code(cuda.primary_context(0)),
        code(cuda.set_device(0)),
        code(cuda.create_stream(0, true)),
    ];
    assert_eq!(refused, [codes::INVALID_DEVICE; 3]);
}

#[test]
fn an_event_goes_with_streams_of_its_own_context_and_waits_go_across() {
    let m = Machine::new();
    let event = m.cuda.create_event().unwrap();
    let elsewhere = Stream::Handle(m.cuda.create_stream(1, false).unwrap());
    assert_eq!(code(m.cuda.record_on(event, elsewhere)), codes::INVALID_HANDLE);
    m.cuda.record_on(event, m.stream(false)).unwrap();
    m.cuda.wait_on(elsewhere, event).unwrap();
    let unknown = Event { handle: 77, ..event };
    assert_eq!(code(m.cuda.wait_on(elsewhere, unknown)), codes::INVALID_HANDLE);
    m.assert_clean();
}

#[test]
fn an_event_is_in_one_hand_at_a_time_and_used_again_once_it_is_given_back() {
    let cuda = Simulated::new(2);
    let (first, second) = (cuda.primary_context(0).unwrap(), cuda.primary_context(1).unwrap());
    let made = || calls(&cuda, Call::EventCreate);
    let two = || [cuda.take_event(first).unwrap(), cuda.take_event(first).unwrap()];
    let [one, other] = two();
    assert_eq!((one.handle == other.handle, one.context, made()), (false, first, 2));
    cuda.spare_event(one);
    cuda.spare_event(other);
    // By whichever thread, but in its own context alone.
    let again = thread::scope(|scope| scope.spawn(two).join().unwrap());
    assert!(again.contains(&one) && again.contains(&other) && made() == 2);
    again.into_iter().for_each(|event| cuda.spare_event(event));
    cuda.push_context(second).unwrap();
    assert_eq!((cuda.take_event(second).unwrap().context, made()), (second, 3));
}

#[test]
fn a_dead_or_unknown_stream_is_a_report_and_an_error() {
    let m = Machine::new();
    let (handle, event) = (m.cuda.create_stream(0, true).unwrap(), m.cuda.create_event().unwrap());
    m.cuda.record_on(event, Stream::Handle(handle)).unwrap();
    m.cuda.destroy_stream(handle).unwrap();
    m.assert_clean();
    let again = m.cuda.create_stream(0, true).unwrap();
    assert!(handle > 2 && again > 2 && handle != again, "no default stream, and never used again");
    for (dead, why) in
        [(handle, "stream#1 (device 0, blocking): it was destroyed"), (77, "0x4d: no stream has")]
    {
        let stream = Stream::Handle(dead);
        let calls = [
            ("cuEventRecord", code(m.cuda.record_on(event, stream))),
            ("cuStreamWaitEvent", code(m.cuda.wait_on(stream, event))),
            ("cuStreamSynchronize", code(m.cuda.synchronize_stream(stream))),
            ("cuStreamIsCapturing", code(m.cuda.is_capturing(stream))),
            ("cuLaunchKernel", code(m.cuda.launch(stream, "work", &[], &[], |_| ()))),
            ("cuMemFreeAsync", code(m.cuda.free(m.x, Some(stream)))),
            ("cuMemAlloc", code(m.cuda.alloc_from_pool(stream, 8, "y"))),
            ("cuStreamBeginCapture", code(m.cuda.begin_capture(stream, CaptureMode::Global))),
            ("cuStreamDestroy", code(m.cuda.destroy_stream(dead))),
        ];
        let reports = m.cuda.take_reports();
        assert_eq!(reports.len(), calls.len());
        for ((call, code), report) in calls.into_iter().zip(reports) {
            assert_eq!(
                (code, report.kind),
                (codes::INVALID_HANDLE, ReportKind::DeadStream),
                "{call}"
            );
            assert!(report.message.contains(call) && report.message.contains(why), "{report}");
        }
    }
}

#[test]
fn the_handle_2_means_the_calling_threads_stream_whoever_is_named() {
    for foreign in [false, true] {
        let m = Machine::new();
        let here = Thread::current();
        let named = if foreign { Thread::numbered(u64::MAX) } else { here };
        let c = m.stream(false);
        m.fill(Stream::PerThread(here), m.x, 7);
        let event = m.cuda.create_event().unwrap();
        m.cuda.record_on(event, Stream::PerThread(named)).unwrap();
        m.cuda.wait_on(c, event).unwrap();
        m.read(c, m.x);
        assert_eq!(m.kinds(), if foreign { vec![ReportKind::ForeignThread] } else { vec![] });
    }
}

#[test]
fn every_call_can_be_made_to_fail_without_effect() {
    let m = Machine::new();
    let (s, event) = (m.stream(false), m.cuda.create_event().unwrap());
    let context = m.cuda.current_context().unwrap().unwrap();
    let (y, host) = (m.alloc("y"), Arc::new(HostMemory::new(64).unwrap()));
    let far = m.cuda.alloc(1, LENGTH, MemoryKind::Device, "far").unwrap();
    m.cuda.set_device(1).unwrap();
    let peers = CopyRoute::Peer { from: context, to: m.cuda.current_context().unwrap().unwrap() };
    m.cuda.set_device(0).unwrap();
    // Relaxed and of another context: whatever is called meanwhile does not end it.
    let captured = Stream::Handle(m.cuda.create_stream(1, false).unwrap());
    m.cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
    let other = Other::new();
    m.cuda.share_memory().unwrap();
    let (own, shared) = (m.alloc("own"), m.cuda.create_shared_event(context).unwrap());
    let pool = m.cuda.create_pool(0).unwrap();
    let pooled = m.cuda.allocate_from(pool, 8, alive(s)).unwrap();
    let imported = m.cuda.import_pool(other.file).unwrap();
    let make = |call: Call| match call {
        Call::PointerGetAttributes => m.cuda.pointer(m.x).map(drop),
        Call::PrimaryCtxRetain => m.cuda.primary_context(1).map(drop),
        Call::CtxGetCurrent => m.cuda.current_context().map(drop),
        Call::CtxGetId => m.cuda.life(context).map(drop),
        Call::CtxGetDevice => m.cuda.current_ordinal().map(drop),
        Call::CtxPushCurrent => m.cuda.push_context(context),
        Call::CtxPopCurrent => m.cuda.pop_context(),
        Call::ModuleUnload => m.cuda.synchronize_context(),
        Call::CtxSynchronize => {
            m.cuda.end_capture(captured).unwrap();
            let made = m.cuda.synchronize_all();
            m.cuda.begin_capture(captured, CaptureMode::Relaxed).unwrap();
            made
        }
        Call::EventCreate => m.cuda.take_event(context).map(drop),
        Call::EventRecord => m.cuda.record_on(event, s),
        Call::EventQuery => m.cuda.query_event(event).map(drop),
        Call::EventSynchronize => m.cuda.synchronize_event(event),
        Call::StreamWaitEvent => m.cuda.wait_on(s, event),
        Call::StreamSynchronize => m.cuda.synchronize_stream(s),
        Call::StreamGetFlags => m.cuda.is_blocking(alive(s)).map(drop),
        Call::StreamGetCtx => m.cuda.stream_context(alive(s)).map(drop),
        Call::StreamGetId => m.cuda.stream_number(alive(s)).map(drop),
        Call::StreamIsCapturing => m.cuda.is_capturing(s).map(drop),
        Call::MemAllocAsync => m.cuda.allocate(LENGTH, alive(s)).map(drop),
        Call::MemFreeAsync => m.cuda.free_on(m.cuda.allocate(8, alive(s)).unwrap(), alive(s)),
        Call::MemAlloc => m.cuda.allocate_now(LENGTH).map(drop),
        Call::MemFree => m.cuda.free_now(m.cuda.allocate_now(LENGTH).unwrap()),
        Call::MemcpyAsync => m.cuda.copy(bytes(m.x, y, CopyRoute::Device), alive(s)),
        Call::MemcpyDtoHAsync => {
            m.cuda.copy(bytes(m.x, host.address(), CopyRoute::Host(&host)), alive(s))
        }
        Call::MemcpyHtoDAsync => {
            m.cuda.copy(bytes(host.address(), y, CopyRoute::FromHost(&host)), alive(s))
        }
        Call::MemcpyPeerAsync => m.cuda.copy(bytes(m.x, far, peers), alive(s)),
        Call::Memcpy2DAsync => m.cuda.copy(rows(m.x, y, 1, CopyRoute::Device), alive(s)),
        Call::Memcpy3DAsync => m.cuda.copy(rows(m.x, y, 2, CopyRoute::Device), alive(s)),
        Call::Memcpy3DPeerAsync => m.cuda.copy(rows(m.x, far, 1, peers), alive(s)),
        Call::StreamGetCaptureInfo => m.cuda.capture_number(captured).map(drop),
        Call::DeviceGetUuid => m.cuda.uuid(0).map(drop),
        Call::StreamCreate => m.cuda.create_own_stream().map(drop),
        Call::EventDestroy => m.cuda.close_event(m.cuda.open_event(&other.event, context).unwrap()),
        Call::IpcGetMemHandle => m.cuda.name_memory(own).map(drop),
        Call::IpcOpenMemHandle => m.cuda.open_memory(&other.memory).map(drop),
        Call::IpcCloseMemHandle => m.cuda.close_memory(m.cuda.open_memory(&other.memory).unwrap()),
        Call::IpcGetEventHandle => m.cuda.name_event(shared).map(drop),
        Call::IpcOpenEventHandle => m.cuda.open_event(&other.event, context).map(drop),
        Call::MemPoolCreate => m.cuda.create_pool(0).map(drop),
        Call::MemPoolExportToShareableHandle => m.cuda.export_pool(pool).map(drop),
        Call::MemPoolImportFromShareableHandle => m.cuda.import_pool(other.file).map(drop),
        Call::MemAllocFromPoolAsync => m.cuda.allocate_from(pool, 8, alive(s)).map(drop),
        Call::MemPoolExportPointer => m.cuda.name_pointer(pooled).map(drop),
        Call::MemPoolImportPointer => m.cuda.import_pointer(imported, &other.pointer).map(drop),
    };
    for call in Call::ALL {
        m.cuda.fail(call.name(), 1, codes::OUT_OF_MEMORY).unwrap();
        let error = make(*call).unwrap_err();
        assert_eq!(error.driver_code().unwrap().call, call.name());
        assert_eq!(error.got(), "CUDA_ERROR_OUT_OF_MEMORY (2)");
        assert_eq!(m.cuda.calls().last().unwrap().outcome, Outcome::Failed(2));
        make(*call).unwrap();
        assert_eq!(m.cuda.calls().last().unwrap().outcome, Outcome::Done);
    }
    assert_eq!(m.cuda.clear_faults(), 0);
}

#[test]
fn a_stream_tells_whether_it_is_blocking() {
    let m = Machine::new();
    for blocking in [false, true] {
        let s = alive(m.stream(blocking));
        assert_eq!(m.cuda.is_blocking(s).unwrap(), blocking);
        m.cuda.destroy_stream(s.native()).unwrap();
        assert_eq!(code(m.cuda.is_blocking(s)), codes::INVALID_HANDLE);
    }
}

#[test]
fn a_fault_is_for_the_nth_next_call_of_its_name() {
    let m = Machine::new();
    m.cuda.fail("cuCtxGetCurrent", 2, codes::NOT_INITIALIZED).unwrap();
    m.cuda.fail("cuCtxGetCurrent", 3, codes::DEINITIALIZED).unwrap();
    m.cuda.current_ordinal().unwrap();
    m.cuda.current_context().unwrap();
    assert_eq!(code(m.cuda.current_context()), codes::NOT_INITIALIZED);
    assert_eq!(code(m.cuda.current_context()), codes::DEINITIALIZED);
    m.cuda.current_context().unwrap();
    m.cuda.fail("cuCtxGetCurrent", 1, codes::UNKNOWN).unwrap();
    assert_eq!(m.cuda.clear_faults(), 1);
    m.cuda.current_context().unwrap();
}

#[test]
fn a_suppressed_call_succeeds_and_does_nothing() {
    for call in ["cuEventRecord", "cuStreamWaitEvent", "cuModuleUnload"] {
        let m = Machine::new();
        let (p, c, y) = (m.stream(false), m.stream(false), m.alloc("y"));
        m.fill(p, m.x, 7);
        m.cuda.suppress(call, 1).unwrap();
        if call == "cuModuleUnload" {
            m.cuda.synchronize_context().unwrap();
        } else {
            m.order(p, c);
        }
        m.copy(c, y, m.x);
        m.cuda.run_all().unwrap();
        m.assert_races(1);
        assert_ne!(m.value(y), 7);
        let made = m.cuda.calls().into_iter();
        let suppressed = made.filter(|made| made.outcome == Outcome::Suppressed);
        assert_eq!(suppressed.map(|made| made.call.name()).collect::<Vec<_>>(), [call]);
    }
}

#[test]
fn a_fault_that_cannot_be_is_refused() {
    let cuda = Simulated::new(1);
    let unknown = cuda.fail("cuMemcpy", 1, 2).unwrap_err();
    assert_eq!(unknown, FaultError::UnknownCall("cuMemcpy".to_owned()));
    for call in Call::ALL {
        assert!(unknown.to_string().contains(call.name()), "the message lists what is known");
    }
    for (name, near) in [
        ("cudaStreamWaitEvent", ", perhaps for cuStreamWaitEvent"),
        ("EventRecord", ", perhaps for cuEventRecord"),
        ("sleep", ""),
        ("", ""),
        ("é", ""),
    ] {
        let said = cuda.fail(name, 1, 2).unwrap_err().to_string();
        assert!(said.starts_with(&format!("call: got {name:?}{near}; allowed: ")), "{said}");
    }
    assert_eq!(cuda.fail("cuEventRecord", 0, 2), Err(FaultError::ZerothCall));
    assert_eq!(cuda.fail("cuEventRecord", 1, 0), Err(FaultError::SuccessCode));
    let needed = cuda.suppress("cuEventCreate", 1).unwrap_err();
    assert_eq!(needed, FaultError::ResultNeeded(Call::EventCreate));
    assert!(needed.to_string().contains("cuStreamWaitEvent"));
}

#[test]
fn the_log_has_the_last_calls_with_what_they_were_given() {
    let m = Machine::new();
    let (s, event) = (m.stream(false), m.cuda.create_event().unwrap());
    m.cuda.clear_calls();
    m.cuda.record_on(event, Stream::Legacy).unwrap();
    m.cuda.wait_on(s, event).unwrap();
    m.cuda.pointer(m.x).unwrap();
    let expected = [
        (Call::EventRecord, Some(Stream::Legacy), Some(event)),
        (Call::StreamWaitEvent, Some(s), Some(event)),
        (Call::PointerGetAttributes, None, None),
    ];
    let log = m.cuda.calls();
    assert_eq!(log.len(), expected.len());
    for (record, (call, stream, event)) in log.iter().zip(expected) {
        let arguments = CallArguments { stream, event, context: None };
        assert_eq!((record.call, record.arguments), (call, arguments));
        assert_eq!((record.thread, record.outcome), (Thread::current(), Outcome::Done));
    }
    (0..LOGGED).for_each(|_| drop(m.cuda.pointer(m.x)));
    let log = m.cuda.calls();
    assert_eq!(log.len(), LOGGED);
    assert!(log.iter().all(|record| record.call == Call::PointerGetAttributes));
}

#[test]
fn codes_have_cudas_names() {
    assert_eq!(codes::name(905), "CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
    assert_eq!(codes::code("CUDA_ERROR_OUT_OF_MEMORY"), Some(2));
    assert_eq!(codes::name(12345), "CUDA_ERROR_UNKNOWN");
    assert_eq!(codes::code("CUDA_SUCCESS"), None);
}
