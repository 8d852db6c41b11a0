//! A Jinja chat template, set up as Hugging Face transformers sets up Jinja2.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Rest, ValueKind, ValueOrKwargs};
use minijinja::{escape_formatter, filters, AutoEscape, Environment, Error, ErrorKind, State, Value};

use crate::bounded::{bound_filters, check_method, text_for};
use crate::json::{python_float, tojson};
use crate::tokenizer::Failure;

pub struct Template {
    environment: Environment<'static>,
}

const NAME: &str = "chat template";
/// Instructions in one rendering: so many, and so many for each byte of the variables' JSON, up to the most. With the templates
/// in tests/golden/text, tests/unit/text/output and models, short conversations and the probes at the start take up to 941, which is
/// 0.4% of this bound; 1,000 messages of one letter each, up to 74,607, or 2.3 a byte, take 2%, and 10,000 of them 8%.
const FUEL: u64 = 250_000;
const FUEL_PER_BYTE: u64 = 100;
const MOST_FUEL: u64 = 10_000_000;
/// strftime_now reads it; templates have no business with it.
const NOW: &str = "__baton_now";

impl Template {
    pub fn new(source: &[u8]) -> Result<Self, String> {
        let source = std::str::from_utf8(source).map_err(|e| {
            format!("the template is not UTF-8: invalid byte sequence at offset {}", e.valid_up_to())
        })?;
        let source = &with_python_line_ends(source);
        check_tags(source)?;
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(false)
            .build()
            .map_err(|e| e.to_string())?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(|out, state, value| match f64_of(value) {
            Some(number) => out.write_str(&python_float(number)).map_err(Error::from),
            None => escape_formatter(out, state, value),
        });
        environment.set_unknown_method_callback(python_method);
        bound_filters(&mut environment);
        as_jinja2_has_them(&mut environment);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
            let message = text_for("raise_exception", &message)?.into_owned();
            Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
        });
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(describe)?;
        Ok(Template { environment })
    }

    pub fn render(&self, variables: &[u8], now: i64, max_bytes: usize) -> Result<String, Failure> {
        let fuel = MOST_FUEL.min(FUEL + FUEL_PER_BYTE * variables.len() as u64);
        let mut variables: HashMap<String, Value> = serde_json::from_slice(variables)
            .map_err(|e| format!("the template's variables are not JSON: {e}"))?;
        variables.insert(NOW.to_string(), now.into());
        let mut environment = self.environment.clone(); // shares all that is large
        environment.set_fuel(Some(fuel));
        let template = environment.get_template(NAME).map_err(describe)?;
        let mut out = Bounded { bytes: vec![], most: max_bytes, full: false };
        let rendered = template.render_captured_to(Value::from_pairs(variables), &mut out);
        if out.full {
            return Err(Failure::TooLong);
        }
        rendered.map_err(|error| match error.kind() {
            ErrorKind::OutOfFuel => format!("the template ran for more than {fuel} instructions{}", line_of(&error)),
            _ => describe(error),
        })?;
        Ok(String::from_utf8(out.bytes).map_err(|e| e.to_string())?)
    }
}

/// Marks an error as the template's own word, by raise_exception.
#[derive(Debug)]
struct Raised;

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

fn line_of(error: &Error) -> String {
    error.line().map_or(String::new(), |line| format!(" (line {line})"))
}

fn describe(error: Error) -> String {
    let line = line_of(&error);
    let raised = std::error::Error::source(&error).is_some_and(|source| source.is::<Raised>());
    match (raised, error.detail()) {
        (true, Some(message)) => format!("{message}{line}"),
        (_, Some(detail)) => format!("{}: {detail}{line}", error.kind()),
        (_, None) => format!("{}{line}", error.kind()),
    }
}

struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    /// More than that was to be written.
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() > self.most - self.bytes.len() {
            self.full = true;
            return Err(io::Error::other("the template's output is too long"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn f64_of(value: &Value) -> Option<f64> {
    if value.is_number() && !value.is_integer() {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

/// Jinja2 reads every line end as `\n`.
fn with_python_line_ends(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// Filters, tests and functions that minijinja lacks, or has with another meaning for some values.
fn as_jinja2_has_them(environment: &mut Environment) {
    let length = |value: &Value| -> Result<Value, Error> {
        if value.is_undefined() {
            return Ok(Value::from(0));
        }
        filters::length(value).map(Value::from)
    };
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("wordcount", |value: &Value| -> Result<usize, Error> {
        let text = text_for("wordcount", value)?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        Ok(text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).count())
    });
    // Python asks whether iter(value) works, and whether the value has a length and items.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        let kind = value.kind();
        matches!(kind, ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Undefined)
            || (kind == ValueKind::Iterable && value.len().is_some())
    });
    environment.add_function("dict", dict);
}

/// dict(a map or pairs of key and value, name=value, ...)
fn dict(args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut all = vec![];
    for arg in &args.into_values() {
        let map = arg.kind() == ValueKind::Map || arg.is_kwargs();
        for item in arg.try_iter()? {
            let value = if map { arg.get_item(&item)? } else { item.get_item_by_index(1)? };
            let key = if map { item } else { item.get_item_by_index(0)? };
            all.push((key, value));
        }
    }
    Ok(Value::from_pairs(all))
}

/// `{% generation %}` marks what the assistant said, for training; here the tags only bracket their content. They become
/// an `if` that holds, so that white space and line numbers stay.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0;
    for tag in tags(source) {
        let text = &source[tag.range.clone()];
        let word = text.trim_matches(['{', '}', '%', '-', '+']).trim();
        let replacement = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&source[copied..tag.range.start]);
        out.push_str(&text.replacen(word, replacement, 1));
        copied = tag.range.end;
    }
    out + &source[copied..]
}

/// The parser recurses along chains like `- - - x` without a bound of its own; this many bytes are far more than any
/// expression that a person writes, and safe on an 8 MiB stack.
const MAX_TAG_BYTES: usize = 4096;

fn check_tags(source: &str) -> Result<(), String> {
    match tags(source).iter().find(|tag| tag.code_bytes > MAX_TAG_BYTES) {
        Some(tag) => {
            let line = source[..tag.range.start].matches('\n').count() + 1;
            Err(format!("an expression is longer than {MAX_TAG_BYTES} bytes (line {line})"))
        }
        None => Ok(()),
    }
}

struct Tag {
    range: Range<usize>,
    /// Bytes outside string literals.
    code_bytes: usize,
}

/// Where `{{ }}` and `{% %}` stand, comments skipped.
fn tags(source: &str) -> Vec<Tag> {
    let bytes = source.as_bytes();
    let mut tags = vec![];
    let mut at = 0;
    while at + 1 < bytes.len() {
        let close: &[u8] = match &bytes[at..at + 2] {
            b"{{" => b"}}",
            b"{%" => b"%}",
            b"{#" => {
                at = source[at..].find("#}").map_or(bytes.len(), |end| at + end + 2);
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        let start = at;
        let mut code_bytes = 0;
        let mut quote = None;
        at += 2;
        while at < bytes.len() {
            match (quote, bytes[at]) {
                (Some(_), b'\\') => at += 1,
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
                (None, _) if bytes[at..].starts_with(close) => break,
                (None, _) => code_bytes += 1,
            }
            at += 1;
        }
        at = (at + 2).min(bytes.len());
        tags.push(Tag { range: start..at, code_bytes });
    }
    tags
}

fn strftime_now(state: &State, format: Value) -> Result<String, Error> {
    let invalid = |message: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {message}"));
    let now = state.lookup(NOW).and_then(|v| v.as_i64()).ok_or_else(|| invalid("no time"))?;
    let format = text_for("strftime_now", &format)?;
    if format.is_empty() {
        return Ok(String::new());
    }
    let format = std::ffi::CString::new(&*format).map_err(|_| invalid("zero byte in the format"))?;
    let now = now as libc::time_t;
    let mut buffer = [0u8; 1024];
    // SAFETY: localtime_r fills the whole of tm or returns null; strftime writes at most the buffer's size.
    let size = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut tm).is_null() {
            return Err(invalid("time out of range"));
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &tm)
    };
    if size == 0 {
        return Err(invalid("result empty or too long"));
    }
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

/// Methods of Python's str that templates use and minijinja-contrib lacks.
fn python_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        let text = value.as_str().unwrap_or_default();
        check_method(value, method, args)?;
        match method {
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            "partition" | "rpartition" => {
                let (separator,): (&str,) = from_args(args)?;
                let parts: [&str; 3] = match method {
                    "partition" => {
                        text.split_once(separator).map_or([text, "", ""], |(l, r)| [l, separator, r])
                    }
                    _ => text.rsplit_once(separator).map_or(["", "", text], |(l, r)| [l, separator, r]),
                };
                return Ok(parts.iter().map(|part| Value::from(*part)).collect());
            }
            "zfill" => {
                let (width,): (usize,) = from_args(args)?;
                let missing = width.saturating_sub(text.chars().count());
                let sign = text.len() - text.trim_start_matches(['+', '-']).len();
                let (sign, digits) = text.split_at(sign.min(1));
                return Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))));
            }
            "rsplit" if !args.is_empty() => {
                let (separator, limit): (&str, Option<i64>) = from_args(args)?;
                let limit = limit.filter(|n| *n >= 0).map_or(usize::MAX, |n| n as usize + 1);
                let mut parts: Vec<&str> = text.rsplitn(limit, separator).collect();
                parts.reverse();
                return Ok(parts.into_iter().map(Value::from).collect());
            }
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}
