//! Hooks the three ways in which programs find the driver's functions.
//!
//! A program links `libcuda.so.1`, calls `dlsym`, or calls `cuGetProcAddress`. For the first way this library
//! exports the driver's names (`hooks`): it is loaded earlier. For the others it exports `dlsym` and
//! `cuGetProcAddress`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

use crate::driver::NOT_FOUND;
use crate::hooks;
use crate::symbols::{TRUE_DLSYM, once, real, true_dlsym};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// The hook that `dlsym` returns in place of the driver's function; null: the C library's `dlsym` answers.
unsafe extern "C" fn instead(library: *mut c_void, name: *const c_char) -> *mut c_void {
    let Some(dlsym) = true_dlsym() else { return null_mut() };
    if name.is_null() || library == libc::RTLD_NEXT {
        return null_mut();
    }
    // SAFETY: `dlsym`'s caller passes a string that ends with a zero.
    let asked = unsafe { CStr::from_ptr(name) };
    if !asked.to_bytes().starts_with(b"cu") {
        return null_mut();
    }
    let hook = match asked.to_bytes() {
        b"cuGetProcAddress" => cuGetProcAddress as *mut c_void,
        b"cuGetProcAddress_v2" => cuGetProcAddress_v2 as *mut c_void,
        exported => hooks::by_symbol(exported),
    };
    let own = if hook.is_null() { null_mut() } else { real(asked) };
    if own.is_null() || hook.is_null() {
        return null_mut();
    }
    // SAFETY: the caller's own arguments.
    let found = unsafe { dlsym(library, name) };
    // Only a function of the driver is replaced, not another library's of the same name. With RTLD_DEFAULT,
    // this library's own hook comes first.
    if found == own || found == hook || is_driver_like(found, own) { hook } else { null_mut() }
}

/// Whether `found` may be the driver's function: it lies in the library of `own`, or in a library with the
/// driver's name. The process may have loaded a second copy of the driver, or know another address of the same
/// function.
fn is_driver_like(found: *mut c_void, own: *mut c_void) -> bool {
    let (Some(one), Some(other)) = (library_of(found), library_of(own)) else { return false };
    // SAFETY: the string is the loader's own, and ends with a zero.
    let path = unsafe { CStr::from_ptr(one.dli_fname) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    one.dli_fbase == other.dli_fbase || name.starts_with(b"libcuda.so")
}

fn library_of(function: *mut c_void) -> Option<libc::Dl_info> {
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the result is a local; all zeros is a valid `Dl_info`, with null pointers.
    let found = unsafe {
        if function.is_null() || libc::dladdr(function, found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    (!found.dli_fname.is_null()).then_some(found)
}

/// `dlsym`, with hooks for the driver's functions.
///
/// The code is in assembly because the C library's `dlsym` looks at the return address to find its caller, for
/// `RTLD_NEXT` and `RTLD_DEFAULT`. So this function jumps to the C library's `dlsym`, and leaves the caller's
/// return address in place.
///
/// # Safety
/// The C library's own rules.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {instead}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "mov rax, qword ptr [rip + {own}]",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "ret",
        instead = sym instead,
        own = sym TRUE_DLSYM,
    )
}

/// `dlsym`, with hooks for the driver's functions. See the x86-64 form for why it is in assembly.
///
/// # Safety
/// The C library's own rules.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {instead}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x16, 2f",
        "adrp x16, {own}",
        "ldr x16, [x16, :lo12:{own}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x16",
        "ret",
        instead = sym instead,
        own = sym TRUE_DLSYM,
    )
}

/// If the library has a hook for the function that the driver returned, replaces the function's address by the
/// hook's.
unsafe fn replace(name: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: the driver has just read the name and written there.
    let (asked, found) = unsafe { (CStr::from_ptr(name).to_bytes(), *to) };
    let hook = match asked {
        b"cuGetProcAddress" if version < 12_000 => cuGetProcAddress as *mut c_void,
        b"cuGetProcAddress" => cuGetProcAddress_v2 as *mut c_void,
        asked => hooks::by_name(asked, found, version, flags & PER_THREAD != 0),
    };
    if !found.is_null() && !hook.is_null() {
        // SAFETY: the driver has just written to this address.
        unsafe { *to = hook };
    }
}

/// The driver's `cuGetProcAddress`, with hooks.
///
/// # Safety
/// The driver's own rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> u32 {
    static OWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let own = once(&OWN, "cuGetProcAddress\0");
    if own.is_null() {
        return NOT_FOUND;
    }
    // SAFETY: the driver exports it with this signature (CUDA Driver API, "Driver Entry Point Access").
    let own: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32 =
        unsafe { core::mem::transmute(own) };
    // SAFETY: the caller's own arguments.
    let code = unsafe { own(name, to, version, flags) };
    if code == 0 {
        // SAFETY: the driver took the name and wrote the answer.
        unsafe { replace(name, to, version, flags) };
    }
    code
}

/// The driver's `cuGetProcAddress` of CUDA 12, with hooks.
///
/// # Safety
/// The driver's own rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> u32 {
    static OWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let own = once(&OWN, "cuGetProcAddress_v2\0");
    if own.is_null() {
        return NOT_FOUND;
    }
    // SAFETY: the driver exports it with this signature (CUDA Driver API, "Driver Entry Point Access").
    let own: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32 =
        unsafe { core::mem::transmute(own) };
    // SAFETY: the caller's own arguments.
    let code = unsafe { own(name, to, version, flags, status) };
    if code == 0 {
        // SAFETY: the driver took the name and wrote the answer.
        unsafe { replace(name, to, version, flags) };
    }
    code
}
