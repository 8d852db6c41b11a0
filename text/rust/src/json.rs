//! The `tojson` filter of Hugging Face's chat templates: Python's json.dumps, byte for byte, with its arguments
//! ensure_ascii (false unless asked), indent, separators and sort_keys. No HTML escaping.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::bounded::{text_for, MOST};

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Values nest as deep as the JSON that they came from, which the parser bounds; a template could build deeper ones.
const MAX_DEPTH: usize = 200;
/// Bytes of an indent or a separator, each of which is written once per value and level.
const MAX_STYLE: usize = 64;

pub fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |positional: Option<Value>, name: &str| -> Result<Value, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(positional.or(named).filter(|v| !v.is_undefined()).unwrap_or(Value::from(())))
    };
    let ensure_ascii = argument(ensure_ascii, "ensure_ascii")?.is_true();
    let indent = argument(indent, "indent")?;
    let separators = argument(separators, "separators")?;
    let sort_keys = argument(None, "sort_keys")?.is_true();
    kwargs.assert_all_used()?;

    let indent = match indent.kind() {
        ValueKind::None => None,
        ValueKind::String => Some(indent.to_string()),
        ValueKind::Bool => Some(" ".repeat(indent.is_true() as usize)),
        _ => {
            let width =
                indent.as_i64().ok_or_else(|| invalid("tojson: indent must be a number or a string"))?;
            Some(" ".repeat(width.clamp(0, 64) as usize))
        }
    };
    let (item_separator, key_separator) = if separators.is_none() {
        (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string())
    } else {
        let part = |index| -> Result<String, Error> {
            Ok(text_for("tojson", &separators.get_item_by_index(index)?)?.into_owned())
        };
        (part(0)?, part(1)?)
    };
    for text in [indent.as_ref(), Some(&item_separator), Some(&key_separator)].into_iter().flatten() {
        if text.len() > MAX_STYLE {
            return Err(invalid(format!("tojson: an indent or a separator is longer than {MAX_STYLE} bytes")));
        }
    }
    let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut out = String::new();
    write(value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("tojson: value nested deeper than {MAX_DEPTH}")));
    }
    if out.len() + value.as_str().map_or(0, str::len) > MOST {
        return Err(invalid(format!("the filter tojson makes more than {MOST} bytes")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)?),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut first = true;
            out.push('[');
            for item in value.try_iter()? {
                separate(style, depth + 1, &mut first, out);
                write(&item, style, depth + 1, out)?;
            }
            close(style, depth, first, ']', out);
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            let mut first = true;
            out.push('{');
            for key in keys {
                separate(style, depth + 1, &mut first, out);
                let name = match key.kind() {
                    ValueKind::String => key.to_string(),
                    ValueKind::None => "null".to_string(),
                    ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_string(),
                    ValueKind::Number => number(&key)?,
                    kind => return Err(invalid(format!("tojson: a key may not be of type {kind}"))),
                };
                write_string(&name, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write(&value.get_item(&key)?, style, depth + 1, out)?;
            }
            close(style, depth, first, '}', out);
        }
        kind => return Err(invalid(format!("tojson: a value of type {kind} is not JSON serializable"))),
    }
    Ok(())
}

fn separate(style: &Style, depth: usize, first: &mut bool, out: &mut String) {
    if !*first {
        out.push_str(&style.item_separator);
    }
    *first = false;
    new_line(style, depth, out);
}

fn close(style: &Style, depth: usize, empty: bool, bracket: char, out: &mut String) {
    if !empty {
        new_line(style, depth, out);
    }
    out.push(bracket);
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && (c as u32) > 0x7e) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    Ok(python_float(f64::try_from(value.clone())?))
}

/// repr(float): the shortest digits that read back, scientific from 1e16 up and below 1e-4.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}
