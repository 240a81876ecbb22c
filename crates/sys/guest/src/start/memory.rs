//! The functions on memory that compiled code calls by name. In assembly: written in Rust, a compiler may see the
//! function itself in the loop and call it.

/// A line about a function. In tests they have names of their own, since the tests' own code has a libc.
#[cfg(not(test))]
macro_rules! name {
    ($before:literal, $name:literal, $after:literal) => {
        concat!($before, $name, $after)
    };
}
#[cfg(test)]
macro_rules! name {
    ($before:literal, $name:literal, $after:literal) => {
        concat!($before, "cosm_", $name, $after)
    };
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    name!(".globl ", "memcpy", ""),
    name!(".type ", "memcpy", ", @function"),
    name!("", "memcpy", ":"),
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    //
    name!(".globl ", "memmove", ""),
    name!(".type ", "memmove", ", @function"),
    name!("", "memmove", ":"),
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    // Forward unless the destination starts inside the source (as unsigned numbers).
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2:",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    //
    name!(".globl ", "memset", ""),
    name!(".type ", "memset", ", @function"),
    name!("", "memset", ":"),
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    //
    name!(".globl ", "memcmp", ""),
    name!(".type ", "memcmp", ", @function"),
    name!(".globl ", "bcmp", ""),
    name!(".type ", "bcmp", ", @function"),
    name!("", "memcmp", ":"),
    name!("", "bcmp", ":"),
    "xor ecx, ecx",
    "2:",
    "cmp rcx, rdx",
    "je 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 2b",
    "ret",
    "3:",
    "xor eax, eax",
    "ret",
    //
    name!(".globl ", "strlen", ""),
    name!(".type ", "strlen", ", @function"),
    name!("", "strlen", ":"),
    "xor eax, eax",
    "2:",
    "cmp byte ptr [rdi + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3:",
    "ret",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    name!(".globl ", "memcpy", ""),
    name!(".type ", "memcpy", ", %function"),
    name!(".globl ", "memmove", ""),
    name!(".type ", "memmove", ", %function"),
    name!("", "memcpy", ":"),
    name!("", "memmove", ":"),
    "sub x3, x0, x1",
    // Forward unless the destination starts inside the source (as unsigned numbers).
    "cmp x3, x2",
    "b.lo 5f",
    "mov x3, x0",
    "2:",
    "cmp x2, #16",
    "b.lo 3f",
    "ldp x4, x5, [x1], #16",
    "stp x4, x5, [x3], #16",
    "sub x2, x2, #16",
    "b 2b",
    "3:",
    "cbz x2, 4f",
    "ldrb w4, [x1], #1",
    "strb w4, [x3], #1",
    "sub x2, x2, #1",
    "b 3b",
    "4:",
    "ret",
    "5:",
    "cbz x2, 4b",
    "sub x2, x2, #1",
    "ldrb w4, [x1, x2]",
    "strb w4, [x0, x2]",
    "b 5b",
    //
    name!(".globl ", "memset", ""),
    name!(".type ", "memset", ", %function"),
    name!("", "memset", ":"),
    "mov x3, x0",
    "2:",
    "cbz x2, 3f",
    "strb w1, [x3], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3:",
    "ret",
    //
    name!(".globl ", "memcmp", ""),
    name!(".type ", "memcmp", ", %function"),
    name!(".globl ", "bcmp", ""),
    name!(".type ", "bcmp", ", %function"),
    name!("", "memcmp", ":"),
    name!("", "bcmp", ":"),
    "mov x3, x0",
    "mov w0, wzr",
    "2:",
    "cbz x2, 3f",
    "ldrb w4, [x3], #1",
    "ldrb w5, [x1], #1",
    "sub x2, x2, #1",
    "subs w0, w4, w5",
    "b.eq 2b",
    "3:",
    "ret",
    //
    name!(".globl ", "strlen", ""),
    name!(".type ", "strlen", ", %function"),
    name!("", "strlen", ":"),
    "mov x1, x0",
    "2:",
    "ldrb w2, [x1], #1",
    "cbnz w2, 2b",
    "sub x0, x1, x0",
    "sub x0, x0, #1",
    "ret",
);

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int, c_void};
    use proptest::prelude::*;
    use std::vec::Vec;

    unsafe extern "C" {
        fn cosm_memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
        fn cosm_memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
        fn cosm_memset(to: *mut c_void, value: c_int, count: usize) -> *mut c_void;
        fn cosm_memcmp(one: *const c_void, other: *const c_void, count: usize) -> c_int;
        fn cosm_bcmp(one: *const c_void, other: *const c_void, count: usize) -> c_int;
        fn cosm_strlen(text: *const c_char) -> usize;
    }

    proptest! {
        #[test]
        fn copies(bytes in proptest::collection::vec(any::<u8>(), 0..300), from in 0_usize..300, to in 0_usize..300, count in 0_usize..300) {
            let mut mine = bytes.clone();
            let mut theirs = bytes;
            let length = mine.len();
            let (from, to) = (from.min(length), to.min(length));
            let count = count.min(length - from.max(to));
            theirs.copy_within(from..from + count, to);
            let base = mine.as_mut_ptr();
            // SAFETY: both ranges lie in the vector.
            let answer = unsafe { cosm_memmove(base.add(to).cast(), base.add(from).cast(), count) };
            prop_assert_eq!(answer, base.wrapping_add(to).cast());
            prop_assert_eq!(&mine, &theirs);
            let mut copy = Vec::from([0_u8; 300]);
            // SAFETY: the copy is larger than the vector can be.
            unsafe { cosm_memcpy(copy.as_mut_ptr().cast(), mine.as_ptr().cast(), length) };
            prop_assert_eq!(&copy[..length], &mine[..]);
            prop_assert!(copy[length..].iter().all(|byte| *byte == 0));
        }

        #[test]
        fn comparisons(one in proptest::collection::vec(0_u8..3, 0..40), other in proptest::collection::vec(0_u8..3, 0..40)) {
            let count = one.len().min(other.len());
            let expected = one[..count].cmp(&other[..count]);
            // SAFETY: both hold this many bytes.
            let (ordered, equal) = unsafe {
                (
                    cosm_memcmp(one.as_ptr().cast(), other.as_ptr().cast(), count),
                    cosm_bcmp(one.as_ptr().cast(), other.as_ptr().cast(), count),
                )
            };
            prop_assert_eq!(ordered.cmp(&0), expected);
            prop_assert_eq!(equal == 0, expected.is_eq());
        }

        #[test]
        fn fills(length in 0_usize..300, value in any::<u8>()) {
            let mut bytes = Vec::from([1_u8; 301]);
            // SAFETY: the vector holds this many bytes and one more.
            unsafe { cosm_memset(bytes.as_mut_ptr().cast(), c_int::from(value), length) };
            prop_assert!(bytes[..length].iter().all(|byte| *byte == value) && bytes[length] == 1);
            bytes.fill(b'x');
            bytes[length] = 0;
            // SAFETY: there is a NUL.
            prop_assert_eq!(unsafe { cosm_strlen(bytes.as_ptr().cast()) }, length);
        }
    }
}
