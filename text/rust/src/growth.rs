//! How much longer a tokenizer's steps may make a text: the factors of a sequence multiply, so that six replacements of one
//! letter by a hundred make a terabyte of a byte.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper};

/// Bytes that may come of one. Llama 2's normalizer, which puts a mark of three bytes before a text and in place of its spaces,
/// makes 12 of a single space; SentencePiece's own rules with such a mark for runs of spaces, 44.
const MOST: u64 = 64;

/// The parts of a tokenizer.json that rewrite a text, as the library understands them.
#[derive(Deserialize)]
struct Rewriting {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    decoder: Option<DecoderWrapper>,
}

/// An error for what is not JSON, and for a part that makes more than MOST bytes of one. The library must not see such a file:
/// it normalizes the added tokens while it reads it.
pub fn check_growth(json: &[u8]) -> Result<(), String> {
    let parts: Rewriting = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let value = |part: Result<Value, serde_json::Error>| part.map_err(|e| e.to_string());
    for (name, part) in [
        ("normalizer", value(serde_json::to_value(parts.normalizer))?),
        ("pre_tokenizer", value(serde_json::to_value(parts.pre_tokenizer))?),
        ("decoder", value(serde_json::to_value(parts.decoder))?),
    ] {
        let growth = growth_of(&part);
        if growth > MOST {
            return Err(format!(
                "{name}: makes up to {growth} bytes of one; {MOST} is the most that is accepted"
            ));
        }
    }
    Ok(())
}

/// Bytes that may come of one. Unicode's own factors are those of UAX #15, "Maximum Expansion Factors", in UTF-8.
fn growth_of(step: &Value) -> u64 {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    let bytes = |name: &str| text(name).len() as u64;
    const COMPOSED: u64 = 3;
    const COMPATIBLE: u64 = 11;
    match text("type") {
        "Sequence" => ["normalizers", "pretokenizers", "decoders"]
            .iter()
            .filter_map(|list| step[*list].as_array())
            .flatten()
            .map(growth_of)
            .fold(1, u64::saturating_mul),
        "Replace" => match step["pattern"]["String"].as_str() {
            Some(pattern) if !pattern.is_empty() => bytes("content").div_ceil(pattern.len() as u64).max(1),
            _ => bytes("content") + 1, // a regular expression may match between any two bytes
        },
        "Prepend" => bytes("prepend") + 1,
        "Metaspace" => bytes("replacement") + 1,
        "NFC" | "NFD" => COMPOSED,
        "NFKC" | "NFKD" => COMPATIBLE,
        "BertNormalizer" => 2 * 2 * COMPOSED, // spaces around Chinese characters, and lower case
        "Precompiled" => longest_replacement(text("precompiled_charsmap")).div_ceil(3).max(1),
        "BPEDecoder" if text("suffix").is_empty() => 3,
        "CTC" if text("word_delimiter_token").is_empty() => 3,
        "ByteLevel" | "Lowercase" | "WordPiece" => 2,
        _ => 1,
    }
}

/// Bytes of the longest replacement in SentencePiece's compiled rules: the size of a table, the table, and texts that end with
/// zero. The long ones are those of characters with three bytes.
fn longest_replacement(rules: &str) -> u64 {
    let rules = base64(rules);
    let Some((size, rest)) = rules.split_first_chunk::<4>() else { return 0 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or_default();
    texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0) as u64
}

/// The library has decoded it before: only its alphabet comes in.
fn base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (vec![], 0u32, 0);
    for letter in text.bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break, // the padding
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
