//! The hook of each driver function in the table.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use crate::driver::NOT_FOUND;
use crate::entries::{COUNT, ENTRIES, Row, rows};
use crate::{run, symbols};

/// A hook, as an address.
type Hook = unsafe extern "C" fn();

/// The hook for an exported symbol; null if there is none.
pub(crate) fn by_symbol(symbol: &[u8]) -> *mut c_void {
    for (entry, (hook, twin)) in ENTRIES.iter().zip(&HOOKS) {
        if entry.symbol.as_bytes() == symbol {
            return *hook as *mut c_void;
        }
        match (entry.twin, twin) {
            (Some(name), Some(hook)) if name.as_bytes() == symbol => return *hook as *mut c_void,
            _ => {}
        }
    }
    null_mut()
}

/// The hook for the function `found`, which `cuGetProcAddress` gave for a name; null if there is none.
///
/// A name may have meant several functions. The address tells which; if the driver exports none at that
/// address, the requested version does, or else the name's first row.
pub(crate) fn by_name(
    name: &[u8],
    found: *mut c_void,
    version: i32,
    per_thread: bool,
) -> *mut c_void {
    let rows = || ENTRIES.iter().zip(&HOOKS).filter(|one| one.0.name.as_bytes() == name);
    let mut row = rows().find(|(one, _)| {
        let symbols = [Some(one.symbol), one.twin];
        symbols.into_iter().flatten().any(|symbol| symbols::real_named(symbol) == found)
    });
    if row.is_none() {
        row = rows().filter(|one| version >= one.0.since).max_by_key(|one| one.0.since);
    }
    match row.or_else(|| rows().next()) {
        Some((_, (_, Some(hook)))) if per_thread => *hook as *mut c_void,
        Some((_, (hook, _))) => *hook as *mut c_void,
        None => by_symbol(name),
    }
}

macro_rules! word {
    ($argument:ident) => {
        u64
    };
}

macro_rules! hooks {
    ($($symbol:ident $(/ $twin:ident)? = $name:literal $(from $since:literal)?, $kind:expr, ($($argument:ident)*);)*) => {
        /// The hooks of the table's rows, and those of their per-thread forms.
        static HOOKS: [(Hook, Option<Hook>); COUNT] = [$((
            // SAFETY: the pointer is only handed out, as a function's address.
            unsafe {
                core::mem::transmute::<unsafe extern "C" fn($(word!($argument)),*) -> u32, Hook>($symbol)
            },
            hooks!(@twin $($twin)?, $($argument)*),
        )),*];

        $(
            /// The hook of the driver's function of this name.
            ///
            /// # Safety
            /// The driver's own rules.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $symbol($($argument: u64),*) -> u32 {
                hooks!(@call $symbol, $symbol, false, $($argument)*)
            }

            hooks!(@define $symbol $($twin)?, $($argument)*);
        )*
    };
    (@call $symbol:ident, $row:ident, $per_thread:literal, $($argument:ident)*) => {{
        static OWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        let arguments: [u64; hooks!(@count $($argument)*)] = [$($argument),*];
        let own = symbols::once(&OWN, concat!(stringify!($symbol), "\0"));
        if own.is_null() {
            return NOT_FOUND;
        }
        let own: unsafe extern "C" fn($(word!($argument)),*) -> u32 =
            // SAFETY: the driver exports the symbol, as a function of this many words (see the module).
            unsafe { core::mem::transmute(own) };
        let mut called = run::before(Row::$row as usize, $per_thread, &arguments);
        let mut arguments = arguments;
        run::replace(Row::$row as usize, $per_thread, &mut arguments, &mut called);
        let [$($argument),*] = arguments;
        // SAFETY: the arguments are the caller's own; a host function is replaced by its wrapper.
        let code = unsafe { own($($argument),*) };
        run::after(Row::$row as usize, $per_thread, &arguments, called, code)
    }};
    (@count $($argument:ident)*) => { <[&str]>::len(&[$(stringify!($argument)),*]) };
    (@twin , $($argument:ident)*) => { None };
    (@twin $twin:ident, $($argument:ident)*) => {
        // SAFETY: the pointer is only handed out, as a function's address.
        Some(unsafe {
            core::mem::transmute::<unsafe extern "C" fn($(word!($argument)),*) -> u32, Hook>($twin)
        })
    };
    (@define $symbol:ident, $($argument:ident)*) => {};
    (@define $symbol:ident $twin:ident, $($argument:ident)*) => {
        /// The hook of the per-thread form.
        ///
        /// # Safety
        /// The driver's own rules.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $twin($($argument: u64),*) -> u32 {
            hooks!(@call $twin, $symbol, true, $($argument)*)
        }
    };
}

rows!(hooks);
