//! The C border (baton_text.h): what comes in is checked and borrowed, what goes out is boxed and owned by the caller,
//! and no panic crosses it. `tokenizer`, `template` and `grammar` hold the work and know nothing of C.

mod bounded;
mod controls;
mod grammar;
mod growth;
mod json;
mod template;
mod tokenizer;

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use grammar::Matcher;
use template::Template;
use tokenizer::{Bounds, Failure, Join, Tokenizer};

const OK: i32 = 0;
const INVALID: i32 = 1;
const INTERNAL: i32 = 2;
const TOO_LONG: i32 = 3;
const STOPPED: i32 = 4;

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

#[repr(C)]
pub struct Vocabulary {
    bytes: Bytes,
    ends: Ids,
    flags: Bytes,
    join: i32,
    strip_spaces: u32,
    verbatim: i32,
}

#[repr(C)]
pub struct Controls {
    tokens: usize,
    marks: usize,
}

/// A raw pointer and a size whose memory `free` gives back.
fn leak<T>(values: Vec<T>) -> (*mut T, usize) {
    let boxed = values.into_boxed_slice();
    let size = boxed.len();
    (Box::into_raw(boxed).cast::<T>(), size)
}

/// # Safety
/// `data` and `size` came from `leak` and were not freed before.
unsafe fn free<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(values: Vec<u8>) -> Self {
        let (data, size) = leak(values);
        Bytes { data, size }
    }
}

impl From<Vec<u32>> for Ids {
    fn from(values: Vec<u32>) -> Self {
        let (data, size) = leak(values);
        Ids { data, size }
    }
}

/// A null pointer with size 0 is an empty slice: C++ views may look like that.
///
/// # Safety
/// `data` points at `size` readable values for the length of the call.
unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string());
    let place = PANIC_PLACE.take();
    format!("internal error in the text library: {text}{place}")
}

thread_local! {
    /// Where this thread's last panic began.
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic becomes a Status, which the caller reports: nothing is written to stderr on the way.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let place = info
                .location()
                .map_or(String::new(), |l| format!(" ({}, line {})", crate_path(l.file()), l.line()));
            PANIC_PLACE.set(place);
        }));
    });
}

/// The end of a source path, from the crate's folder on: what comes before depends on the machine that built it.
fn crate_path(file: &str) -> &str {
    match file.rfind("/src/") {
        Some(src) => &file[file[..src].rfind('/').map_or(0, |slash| slash + 1)..],
        None => file,
    }
}

/// Runs `work`, stores its value or its error, and turns both into a code.
///
/// # Safety
/// `out` and `error` are valid for writes.
unsafe fn guarded<T, C, E: Into<Failure>>(
    out: *mut C,
    error: *mut Bytes,
    store: impl FnOnce(T) -> C,
    work: impl FnOnce() -> Result<T, E>,
) -> i32 {
    let fail = |message: String, code| {
        error.write(message.into_bytes().into());
        code
    };
    keep_panics_quiet();
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            out.write(store(value));
            OK
        }
        Ok(Err(failure)) => match failure.into() {
            Failure::Invalid(message) => fail(message, INVALID),
            Failure::TooLong => fail("the output is longer than is allowed".to_string(), TOO_LONG),
            Failure::Stopped => fail("stopped: the result is no longer wanted".to_string(), STOPPED),
        },
        Err(payload) => fail(panic_message(payload), INTERNAL),
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_text_bytes_free(bytes: Bytes) {
    free(bytes.data, bytes.size);
}

#[no_mangle]
pub unsafe extern "C" fn baton_text_ids_free(ids: Ids) {
    free(ids.data, ids.size);
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_new(
    json: *const u8,
    size: usize,
    config: *const u8,
    config_size: usize,
    out: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    let (json, config) = (slice(json, size), slice(config, config_size));
    guarded(out, error, |value| Box::into_raw(Box::new(value)), || Tokenizer::from_json(json, config))
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    add_special_tokens: i32,
    mark: u32,
    max_tokens: usize,
    wanted: Option<unsafe extern "C" fn(*const c_void) -> i32>,
    asked: *const c_void,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    let text = slice(text, size);
    let wanted = || wanted.is_none_or(|wanted| wanted(asked) != 0);
    let bounds = Bounds { max_tokens, wanted: &wanted };
    guarded(out, error, Ids::from, || {
        let mark = if mark == 0 { None } else { Some(character(mark)?) };
        (*tokenizer).encode(text, add_special_tokens != 0, mark, &bounds)
    })
}

fn character(code: u32) -> Result<char, String> {
    char::from_u32(code).ok_or_else(|| format!("{code:#x} is no character"))
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_find_controls(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    kept: *const u32,
    kept_size: usize,
    out: *mut Controls,
    error: *mut Bytes,
) -> i32 {
    let (text, kept) = (slice(text, size), slice(kept, kept_size));
    guarded(
        out,
        error,
        |found: controls::Found| Controls { tokens: found.tokens, marks: found.places.len() },
        || (*tokenizer).find_controls(text, kept),
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_mark_controls(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    kept: *const u32,
    kept_size: usize,
    mark: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    let (text, kept) = (slice(text, size), slice(kept, kept_size));
    guarded(
        out,
        error,
        |text: String| Bytes::from(text.into_bytes()),
        || (*tokenizer).mark(text, kept, character(mark)?),
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_text_unmark(
    text: *const u8,
    size: usize,
    mark: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    let text = slice(text, size);
    guarded(
        out,
        error,
        |text: String| Bytes::from(text.into_bytes()),
        || -> Result<String, String> {
            let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
            Ok(controls::unmark(text, character(mark)?).0)
        },
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    size: usize,
    keep_special: i32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    let ids = slice(ids, size);
    guarded(
        out,
        error,
        |text: String| Bytes::from(text.into_bytes()),
        || (*tokenizer).decode(ids, keep_special != 0),
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_tokenizer_vocabulary(
    tokenizer: *const Tokenizer,
    out: *mut Vocabulary,
    error: *mut Bytes,
) -> i32 {
    guarded(
        out,
        error,
        |table: tokenizer::Table| Vocabulary {
            bytes: table.bytes.into(),
            ends: table.ends.into(),
            flags: table.flags.into(),
            join: match table.join {
                Join::Opaque => 0,
                Join::Bytes => 1,
                Join::BytesFirstDecoded => 2,
            },
            strip_spaces: table.strip_spaces,
            verbatim: table.verbatim as i32,
        },
        || (*tokenizer).table(),
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_new(
    source: *const u8,
    size: usize,
    out: *mut *mut Template,
    error: *mut Bytes,
) -> i32 {
    let source = slice(source, size);
    guarded(out, error, |value| Box::into_raw(Box::new(value)), || Template::new(source))
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_template_render(
    template: *const Template,
    variables: *const u8,
    size: usize,
    now: i64,
    max_bytes: usize,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    let variables = slice(variables, size);
    guarded(
        out,
        error,
        |text: String| Bytes::from(text.into_bytes()),
        || (*template).render(variables, now, max_bytes),
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_vocabulary_new(
    tokenizer: *const Tokenizer,
    out: *mut *mut grammar::Vocabulary,
    error: *mut Bytes,
) -> i32 {
    guarded(out, error, |value| Box::into_raw(Box::new(value)), || grammar::Vocabulary::new(&*tokenizer))
}

#[no_mangle]
pub unsafe extern "C" fn baton_grammar_vocabulary_free(vocabulary: *mut grammar::Vocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_new(
    vocabulary: *const grammar::Vocabulary,
    grammar: *const u8,
    size: usize,
    out: *mut *mut Matcher,
    error: *mut Bytes,
) -> i32 {
    let grammar = slice(grammar, size);
    guarded(out, error, |value| Box::into_raw(Box::new(value)), || (*vocabulary).compile(grammar))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_fork(
    matcher: *const Matcher,
    out: *mut *mut Matcher,
    error: *mut Bytes,
) -> i32 {
    guarded(
        out,
        error,
        |value| Box::into_raw(Box::new(value)),
        || -> Result<Matcher, String> { Ok((*matcher).fork()) },
    )
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_push(matcher: *mut Matcher, token: u32, error: *mut Bytes) -> i32 {
    let mut done = ();
    guarded(&mut done, error, |()| (), || (*matcher).push(token))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    size: usize,
    out: *mut i32,
    error: *mut Bytes,
) -> i32 {
    let words = if size == 0 { &mut [] } else { std::slice::from_raw_parts_mut(words, size) };
    guarded(out, error, |accepts: bool| accepts as i32, || (*matcher).mask(words))
}

#[no_mangle]
pub unsafe extern "C" fn baton_matcher_forced(
    matcher: *const Matcher,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    guarded(out, error, Bytes::from, || -> Result<Vec<u8>, String> { Ok((*matcher).forced()) })
}

/// Handles are shared between threads by contract; the compiler holds us to it.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<Template>();
    shared::<grammar::Vocabulary>();
    const fn moved<T: Send>() {}
    moved::<Matcher>();
};
