//! Filters, methods and functions of templates that can make far more than they are given: each one is refused before it
//! makes more than MOST bytes. Operators (`~`, `+`, `*`) and blocks (`{% set %}`) belong to the language: the library asks
//! nobody before it carries them out.

use std::borrow::Cow;
use std::fmt::{self, Write};

use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{filters, Environment, Error, ErrorKind, State, Value};

/// Bytes of a text; of a list those of its items, whose own content is shared. No model reads so much.
pub const MOST: usize = 16 << 20;
const ITEM: usize = std::mem::size_of::<Value>();

/// Takes from the room what the result needs. Arguments: the value first, as filters have it. Missing and wrong ones are left to
/// the filter, which says so.
type Measure = fn(&mut Room, &[Value]) -> Result<(), Error>;

/// The rest of MOST that a call has.
#[derive(Clone, Copy)]
pub struct Room<'a> {
    /// "filter", "method" or "function".
    kind: &'static str,
    name: &'a str,
    left: usize,
}

/// Replaces the library's filters by those that measure first.
pub fn bound_filters(environment: &mut Environment) {
    let texts: Measure = |room, args| args.iter().try_for_each(|arg| room.text(arg).map(drop));
    let items: Measure = |room, args| args.first().map_or(Ok(()), |list| room.items(list));
    let bounded: [(&'static str, Value, Measure); 31] = [
        ("batch", Value::from_function(filters::batch), batch),
        ("capitalize", Value::from_function(filters::capitalize), texts),
        ("dictsort", Value::from_function(filters::dictsort), items),
        ("e", Value::from_function(filters::escape), texts),
        ("escape", Value::from_function(filters::escape), texts),
        ("format", Value::from_function(filters::format), |room, args| format(room, args, '%')),
        ("groupby", Value::from_function(filters::groupby), items),
        ("indent", Value::from_function(filters::indent), indent),
        ("join", Value::from_function(filters::join), join),
        ("last", Value::from_function(filters::last), items),
        ("lines", Value::from_function(filters::lines), lines),
        ("list", Value::from_function(filters::list), items),
        ("lower", Value::from_function(filters::lower), texts),
        ("map", Value::from_function(map), items),
        ("pprint", Value::from_function(filters::pprint), |room, args| {
            args.first().map_or(Ok(()), |value| room.print(format_args!("{value:#?}")).map(drop))
        }),
        ("reject", Value::from_function(filters::reject), items),
        ("rejectattr", Value::from_function(filters::rejectattr), items),
        ("replace", Value::from_function(filters::replace), replace),
        ("reverse", Value::from_function(filters::reverse), items),
        ("safe", Value::from_function(filters::safe), texts),
        ("select", Value::from_function(filters::select), items),
        ("selectattr", Value::from_function(filters::selectattr), items),
        ("slice", Value::from_function(filters::slice), slice),
        ("sort", Value::from_function(filters::sort), items),
        ("split", Value::from_function(filters::split), split),
        ("string", Value::from_function(filters::string), texts),
        ("sum", Value::from_function(filters::sum), |room, args| join(room, &args[..args.len().min(1)])),
        ("title", Value::from_function(filters::title), texts),
        ("trim", Value::from_function(filters::trim), texts),
        ("unique", Value::from_function(filters::unique), items),
        ("upper", Value::from_function(filters::upper), texts),
    ];
    for (name, filter, measure) in bounded {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            measure(&mut Room { kind: "filter", name, left: MOST }, &args)?;
            filter.call(state, &args)
        });
    }
    // It writes out every variable of a template, shared ones again and again.
    environment.remove_global("debug");
}

/// An error if the method of a text makes too much.
pub fn check_method(value: &Value, method: &str, args: &[Value]) -> Result<(), Error> {
    let measure: Measure = match method {
        "format" => |room, args| format(room, args, '{'),
        "join" => |room, args| join(room, &args.iter().rev().cloned().collect::<Vec<_>>()),
        "replace" => replace,
        "rsplit" | "split" => split,
        "splitlines" => lines,
        "zfill" => |room, args| room.take(args.get(1).and_then(Value::as_usize).unwrap_or(0)),
        _ => return Ok(()),
    };
    let all: Vec<Value> = [value].into_iter().chain(args).cloned().collect();
    measure(&mut Room { kind: "method", name: method, left: MOST }, &all)
}

/// A function's argument as text.
pub fn text_for<'v>(function: &str, value: &'v Value) -> Result<Cow<'v, str>, Error> {
    Room { kind: "function", name: function, left: MOST }.string(value)
}

impl Room<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let message = format!("the {} {} makes more than {MOST} bytes", self.kind, self.name);
                Err(Error::new(ErrorKind::InvalidOperation, message))
            }
        }
    }

    /// The bytes that a value takes as text. A list of lists of one and the same list has no end in sight: the text is counted,
    /// not made.
    fn text(&mut self, value: &Value) -> Result<usize, Error> {
        match value.as_str() {
            Some(text) => self.take(text.len()).map(|()| text.len()),
            None => self.print(format_args!("{value}")),
        }
    }

    fn print(&mut self, text: fmt::Arguments) -> Result<usize, Error> {
        struct Count<'a>(&'a mut usize);
        impl Write for Count<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                *self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
                Ok(())
            }
        }
        let before = self.left;
        match Count(&mut self.left).write_fmt(text) {
            Ok(()) => Ok(before - self.left),
            Err(_) => self.take(usize::MAX).map(|()| 0),
        }
    }

    fn items(&mut self, list: &Value) -> Result<(), Error> {
        let counted = || list.try_iter().map_or(0, |items| items.take(MOST / ITEM + 1).count());
        let count = list.len().unwrap_or_else(counted);
        self.take(count.saturating_mul(ITEM))
    }

    /// An argument as text, which takes nothing of this room and has as much of its own.
    fn string<'v>(&self, value: &'v Value) -> Result<Cow<'v, str>, Error> {
        if let Some(text) = value.as_str() {
            return Ok(Cow::from(text));
        }
        Room { left: MOST, ..*self }.text(value)?;
        Ok(Cow::from(value.to_string()))
    }
}

/// (value, from, to[, count])
fn replace(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    let [value, from, to, rest @ ..] = args else { return Ok(()) };
    let (value, from, to) = (room.string(value)?, room.string(from)?, room.string(to)?);
    let most = rest.first().and_then(Value::as_usize).unwrap_or(usize::MAX);
    let found = value.matches(&*from).count().min(most);
    room.take(value.len() - found * from.len())?;
    room.take(found.saturating_mul(to.len()))
}

/// (list[, what stands between, ...])
fn join(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    let Some((list, others)) = args.split_first() else { return Ok(()) };
    let Ok(items) = list.try_iter() else { return Ok(()) };
    let mut between = 1; // an empty item takes its time, too
    for other in others {
        between += room.string(other)?.len();
    }
    for item in items.checked() {
        room.text(&item?)?;
        room.take(between)?;
    }
    Ok(())
}

/// (value[, separator[, most cuts]])
fn split(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    let Some(text) = args.first().and_then(Value::as_str) else { return Ok(()) };
    let cuts = match args.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        None => text.split_whitespace().count(),
    };
    let most = args.get(2).and_then(Value::as_usize).unwrap_or(usize::MAX);
    room.take(text.len())?;
    room.take((cuts.min(most) + 1).saturating_mul(ITEM))
}

/// (value)
fn lines(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    let Some(value) = args.first() else { return Ok(()) };
    let text = room.string(value)?;
    room.take(text.len())?;
    room.take(text.lines().count().saturating_mul(ITEM))
}

/// (value[, width, ...])
fn indent(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    let Some(value) = args.first() else { return Ok(()) };
    let text = room.string(value)?;
    let named = args.iter().find(|arg| arg.is_kwargs()).and_then(|named| named.get_attr("width").ok());
    let width =
        args.get(1).and_then(Value::as_usize).or(named.and_then(|width| width.as_usize())).unwrap_or(4);
    room.take(text.len())?;
    room.take((text.matches('\n').count() + 1).saturating_mul(width))
}

/// (list, count[, what fills the last one])
fn batch(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    args.first().map_or(Ok(()), |list| room.items(list))?;
    match args {
        [_, count, _, ..] => room.take(count.as_usize().unwrap_or(0).saturating_mul(ITEM)),
        _ => Ok(()),
    }
}

/// (list, count[, what fills the short ones])
fn slice(room: &mut Room, args: &[Value]) -> Result<(), Error> {
    args.first().map_or(Ok(()), |list| room.items(list))?;
    const EMPTY_LIST: usize = 4 * ITEM; // its handle, its counts and where its items are
    let count = args.get(1).and_then(Value::as_usize).unwrap_or(0);
    room.take(count.saturating_mul(EMPTY_LIST))
}

/// (text, what the fields that begin with `opens` stand for, ...). A width or a precision is as good as a text of that length.
fn format(room: &mut Room, args: &[Value], opens: char) -> Result<(), Error> {
    let Some((text, values)) = args.split_first() else { return Ok(()) };
    let text = room.string(text)?;
    room.take(text.len())?;
    const NUMBER: usize = 512; // the digits of the largest float, and what groups them
    let mut most = NUMBER;
    for value in values {
        most += room.string(value)?.len();
    }
    for field in text.split(opens).skip(1) {
        let field = match (opens, field.strip_prefix('(')) {
            ('{', _) => field.split('}').next().unwrap_or_default(),
            (_, Some(named)) => named.split_once(')').map_or("", |(_, field)| field),
            (_, None) => field,
        };
        // printf's fields end with a letter, those in brackets may begin with a name.
        let numbers = match opens {
            '{' => field,
            _ => field.split(|c: char| c.is_ascii_alphabetic()).next().unwrap_or_default(),
        };
        for digits in numbers.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
            let width: usize = digits.parse().unwrap_or(usize::MAX);
            room.take(width.saturating_mul(4))?; // filled with any character
        }
        room.take(most)?;
    }
    Ok(())
}

/// The library's, but that what another filter makes of all items counts together.
fn map(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let [list, name, others @ ..] = args.as_slice() else { return by_attribute(state, &args) };
    let Some(name) = name.as_str() else { return by_attribute(state, &args) };
    let mut room = Room { kind: "filter", name: "map", left: MOST };
    let mut made = vec![];
    for item in list.try_iter()?.checked() {
        let mut args = vec![item?];
        args.extend_from_slice(others);
        let value = state.apply_filter(name, &args)?;
        match value.as_str() {
            Some(text) => room.take(text.len())?,
            None => room.items(&value)?,
        }
        made.push(value);
    }
    Ok(Value::from(made))
}

fn by_attribute(state: &mut State, args: &[Value]) -> Result<Value, Error> {
    Value::from_function(filters::map).call(state, args)
}
