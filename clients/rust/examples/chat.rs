//! Streams an answer: cargo run --example chat [ADDRESS]. BATON_API_KEY is the key, if one is needed.
use std::io::Write;
use std::time::Duration;

use baton_client::{Client, Options, Part};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8470".into());
    let key = std::env::var("BATON_API_KEY").unwrap_or_default();
    let client = Client::new(&address, Options { key, timeout: Some(Duration::from_secs(120)), ..Default::default() })?;
    let mut parts = client.stream("Hello! My name is Ada.");
    while let Some(part) = parts.next().await {
        match part? {
            Part::Text(text) => print!("{text}"),
            Part::Answer(answer) => {
                println!("\n{}, {} tokens", answer.reason.as_str_name(), answer.finished.usage.unwrap_or_default().completion_tokens)
            }
            Part::Thinking(_) | Part::Call(_) => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
