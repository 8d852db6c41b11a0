//! Which tokens are control tokens, where they occur in a text, and the cutting of a text at its added tokens with some
//! occurrences excluded. A *mark* is a character that the caller puts inside an occurrence (after its first character), so
//! that no token matches across it; `unmark` takes the marks out again and keeps their places as *breaks*.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizer::Range as In;
use tokenizers::{AddedToken, AddedVocabulary, NormalizedString, Normalizer, NormalizerWrapper, Token};

/// One added token, as it is looked for.
struct Pattern {
    id: u32,
    token: AddedToken,
    control: bool,
}

/// Added tokens that are looked for together.
struct Patterns {
    finder: AhoCorasick,
    patterns: Vec<Pattern>,
}

pub struct Controls {
    /// Looked for in a text as it stands, and in what the normalizer makes of the rest.
    plain: Option<Patterns>,
    normalized: Option<Patterns>,
    /// All control tokens as they are written, whichever way the tokenizer looks for them.
    written: Option<Patterns>,
    /// Their texts, in order: finds what a text's end may be the beginning of.
    sorted: Vec<String>,
    longest: usize,
    by_id: HashMap<u32, String>,
}

/// Control tokens in a text.
#[derive(Default)]
pub struct Found {
    /// Occurrences of control tokens that do not overlap.
    pub tokens: usize,
    /// Where marks belong, in order: inside each occurrence, and inside an end that another text could complete.
    pub places: Vec<usize>,
}

type Part = (NormalizedString, Option<Vec<Token>>);

/// A token that the file calls special is one. Others are, if their text has a character beyond letters, digits and white
/// space (`<think>`, `[TOOL_CALLS]`): some tokenizers have letters or runs of spaces as added tokens, and those are text.
fn is_control(token: &AddedToken) -> bool {
    let text = |c: char| c.is_alphanumeric() || c.is_whitespace() || c == '\u{2581}';
    token.special || (!token.content.chars().all(text) && token.content.chars().nth(1).is_some())
}

impl Patterns {
    fn new(patterns: Vec<(String, Pattern)>) -> Result<Option<Patterns>, String> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let (texts, patterns): (Vec<String>, Vec<Pattern>) = patterns.into_iter().unzip();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&texts)
            .map_err(|e| format!("added tokens: {e}"))?;
        Ok(Some(Patterns { finder, patterns }))
    }

    /// Every occurrence, also those that overlap.
    fn all<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, &'a Pattern)> + 'a {
        self.finder
            .find_overlapping_iter(text)
            .map(|found| (found.range(), &self.patterns[found.pattern().as_usize()]))
    }

    /// The library's own cutting (AddedVocabulary::find_matches: the leftmost occurrence, the longest of those that begin
    /// there, the flags of the token), of the occurrences that `allowed` lets pass.
    fn cut(&self, text: &str, allowed: impl Fn(&Range<usize>) -> bool) -> Vec<(Option<u32>, (usize, usize))> {
        let mut found: Vec<_> = self.all(text).filter(|(range, _)| allowed(range)).collect();
        found.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
        let mut parts = vec![];
        let mut searched = 0;
        let mut done = 0;
        for (range, pattern) in found {
            if range.start < searched {
                continue;
            }
            searched = range.end;
            let (mut start, mut end) = (range.start, range.end);
            let token = &pattern.token;
            if token.single_word {
                let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                if word(text[..start].chars().next_back()) || word(text[end..].chars().next()) {
                    continue;
                }
            }
            if token.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if token.rstrip {
                end += text[end..].len() - text[end..].trim_start().len();
            }
            if done < start {
                parts.push((None, (done, start)));
            }
            parts.push((Some(pattern.id), (start, end)));
            done = end;
        }
        if done < text.len() {
            parts.push((None, (done, text.len())));
        }
        parts
    }
}

impl Controls {
    pub fn new(
        added: &AddedVocabulary,
        normalizer: Option<&NormalizerWrapper>,
    ) -> Result<Controls, String> {
        let (mut plain, mut normalized, mut written) = (vec![], vec![], vec![]);
        let mut by_id = HashMap::new();
        for (&id, token) in added.get_added_tokens_decoder() {
            let control = is_control(token);
            let pattern = || Pattern { id, token: token.clone(), control };
            if control {
                by_id.insert(id, token.content.clone());
                written.push((token.content.clone(), pattern()));
            }
            if token.normalized {
                let mut text = NormalizedString::from(token.content.as_str());
                if let Some(normalizer) = normalizer {
                    normalizer.normalize(&mut text).map_err(|e| e.to_string())?;
                }
                if !text.get().is_empty() {
                    normalized.push((text.get().to_string(), pattern()));
                }
            } else {
                plain.push((token.content.clone(), pattern()));
            }
        }
        let mut sorted: Vec<String> = by_id.values().cloned().collect();
        sorted.sort();
        Ok(Controls {
            plain: Patterns::new(plain)?,
            normalized: Patterns::new(normalized)?,
            written: Patterns::new(written)?,
            longest: sorted.iter().map(String::len).max().unwrap_or(0),
            sorted,
            by_id,
        })
    }

    pub fn contains(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Control tokens in `text`, but for those of `kept` (in order). A token that is looked for after the normalizer is also
    /// found where only the normalizer makes it (`<TOOL>` for `<tool>`, full-width letters).
    pub fn find(&self, text: &str, kept: &[u32], normalizer: Option<&NormalizerWrapper>) -> Found {
        let Some(written) = &self.written else { return Found::default() };
        let counts = |pattern: &Pattern| pattern.control && kept.binary_search(&pattern.id).is_err();
        let mut ranges: Vec<Range<usize>> =
            written.all(text).filter(|(_, p)| counts(p)).map(|(range, _)| range).collect();
        if let (Some(normalizer), Some(normalized)) = (normalizer, &self.normalized) {
            if normalized.patterns.iter().any(counts) {
                let mut other = NormalizedString::from(text);
                let _ = normalizer.normalize(&mut other);
                let found = normalized.all(other.get()).filter(|(_, p)| counts(p));
                ranges.extend(found.filter_map(|(range, _)| other.convert_offsets(In::Normalized(range))));
            }
        }
        let mut found = Found::default();
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut end = 0;
        for range in &ranges {
            if range.start >= end {
                found.tokens += 1;
                end = range.end;
            }
            let inside = after_first(text, range.start);
            if inside >= range.end {
                found.places.push(range.start); // one character has no inside
            }
            found.places.push(inside);
        }
        found.places.extend(self.open_ends(text));
        found.places.sort_unstable();
        found.places.dedup();
        found
    }

    /// Where marks belong in an end of `text`, white space aside, that is the beginning of a control token: the text that
    /// follows in the prompt could complete it.
    fn open_ends<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let end = text.trim_end();
        let first = end.len().saturating_sub(self.longest.saturating_sub(1));
        (first..end.len()).filter(|&at| end.is_char_boundary(at)).filter_map(move |at| {
            let tail = &end[at..];
            let next = self.sorted.partition_point(|token| token.as_str() <= tail);
            self.sorted.get(next).filter(|token| token.starts_with(tail)).map(|_| after_first(end, at))
        })
    }

    /// The steps of the library's extract_and_normalize: they cut out added tokens that stand in the text, then those in
    /// what the normalizer makes of the rest; here none that reaches across one of `breaks`.
    pub fn cut_plain(&self, text: NormalizedString, breaks: &[usize]) -> Vec<Part> {
        let shift = text.offsets_original().0;
        cut(&self.plain, text, |text, range| {
            whole(breaks, range.start + shift, range.end + shift, is_one(text, range))
        })
    }

    pub fn cut_normalized(&self, text: NormalizedString, breaks: &[usize]) -> Vec<Part> {
        let shift = text.offsets_original().0;
        cut(&self.normalized, text, |text, range| {
            let original = text.convert_offsets(In::Normalized(range.clone()));
            let one = is_one(text, range);
            original.is_none_or(|range| whole(breaks, range.start + shift, range.end + shift, one))
        })
    }

    /// Places in a word at which it has to be cut, because the model itself (one of whole words, or of scored pieces) made a
    /// control token of its letters.
    pub fn cuts(&self, word: &str, tokens: &[Token]) -> Vec<usize> {
        let of = |token: &Token| {
            let (start, end) = token.offsets;
            let content = self.by_id.get(&token.id)?;
            let place = after_first(word, start);
            (word.get(start..end)? == content && place < end).then_some(place)
        };
        tokens.iter().filter_map(of).collect()
    }
}

fn cut(
    patterns: &Option<Patterns>,
    text: NormalizedString,
    allowed: impl Fn(&NormalizedString, &Range<usize>) -> bool,
) -> Vec<Part> {
    let Some(patterns) = patterns else { return vec![(text, None)] };
    let slice = |range: (usize, usize)| text.slice(In::Normalized(range.0..range.1));
    patterns
        .cut(text.get(), |range| allowed(&text, range))
        .into_iter()
        .filter_map(|(id, range)| {
            let part = slice(range)?;
            let token = id.map(|id| vec![Token::new(id, part.get().to_string(), (0, part.get().len()))]);
            Some((part, token))
        })
        .collect()
}

/// True if no break lies between `start` and `end`. One character has no inside: breaks at both ends break it.
fn whole(breaks: &[usize], start: usize, end: usize, one_character: bool) -> bool {
    let next = breaks.partition_point(|&place| place <= start);
    match breaks.get(next) {
        Some(&place) if place < end => false,
        Some(&place) => !(one_character && place == end && next > 0 && breaks[next - 1] == start),
        None => true,
    }
}

fn is_one(text: &NormalizedString, range: &Range<usize>) -> bool {
    after_first(text.get(), range.start) == range.end
}

fn after_first(text: &str, start: usize) -> usize {
    start + text[start..].chars().next().map_or(0, char::len_utf8)
}

/// `text` with `mark` at the places (in order).
pub fn mark(text: &str, places: &[usize], mark: char) -> String {
    let mut marked = String::with_capacity(text.len() + places.len() * mark.len_utf8());
    let mut done = 0;
    for &place in places {
        marked.push_str(&text[done..place]);
        marked.push(mark);
        done = place;
    }
    marked + &text[done..]
}

/// A text without its marks, and the places where they stood, in order. A mark may also have become a JSON escape.
pub fn unmark(text: &str, mark: char) -> (String, Vec<usize>) {
    let escape = format!("\\u{:04x}", mark as u32);
    let text = match text.contains(&escape) {
        true => Cow::from(text.replace(&escape, mark.encode_utf8(&mut [0; 4]))),
        false => Cow::from(text),
    };
    let mut plain = String::with_capacity(text.len());
    let mut breaks = vec![];
    for (i, part) in text.split(mark).enumerate() {
        if i > 0 {
            breaks.push(plain.len());
        }
        plain.push_str(part);
    }
    (plain, breaks)
}
