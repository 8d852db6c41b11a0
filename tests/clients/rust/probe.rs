//! Runs one request by the client, as its argument in JSON says, and prints in JSON what came of it. clients_test.py builds it as an example of the client.
use std::io::Read;
use std::time::Duration;

use base64::Engine;
use baton_client::{Answer, Client, Error, Options, Part, Tls, ToolCall, v1};
use futures_util::StreamExt;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator, text_map_propagator::FieldIter};
use prost::Message;
use serde_json::{Value, json};

fn of_call(call: &ToolCall) -> Vec<Value> {
    vec![json!(call.id), json!(call.name), json!(call.arguments_json), json!(call.complete)]
}

fn of_answer(answer: &Answer) -> Value {
    json!({
        "text": answer.text, "thinking": answer.thinking, "calls": answer.calls.iter().map(of_call).collect::<Vec<_>>(),
        "reason": answer.reason.as_str_name().trim_start_matches("FINISH_REASON_"),
        "tokens": answer.finished.usage.clone().unwrap_or_default().completion_tokens, "request_id": answer.started.request_id,
    })
}

fn of_error(error: Error) -> Value {
    let mut said = json!({
        "code": error.code as i32, "message": error.message, "reason": error.reason, "metadata": error.metadata, "field": error.field,
        "final": error.is_final, "request_id": error.request_id,
    });
    if let Some(wait) = error.retry_after {
        said["retry_after"] = json!(wait.as_secs_f64());
    }
    said
}

/// Sends the same context always.
#[derive(Debug)]
struct Fixed;

impl TextMapPropagator for Fixed {
    fn inject_context(&self, _: &Context, injector: &mut dyn Injector) {
        injector.set("traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01".into());
    }

    fn extract_with_context(&self, context: &Context, _: &dyn Extractor) -> Context {
        context.clone()
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&[])
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    opentelemetry::global::set_text_map_propagator(Fixed);
    let asked: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("no argument")?)?;
    let text = |key: &str| asked[key].as_str().unwrap_or_default().to_string();
    let number = |key: &str| asked[key].as_u64().unwrap_or_default();
    let request = v1::ChatRequest::decode(&*base64::engine::general_purpose::STANDARD.decode(text("request"))?)?;
    let tls = if text("ca").is_empty() { Tls::Off } else { Tls::Roots(std::fs::read(text("ca"))?) };
    let timeout = Some(Duration::from_secs(number("timeout")));
    let client = Client::new(&text("address"), Options { key: text("key"), tls, attempts: number("attempts") as u32, timeout })?;
    let mut said = json!({});
    if text("op") == "complete" {
        match client.complete(request).await {
            Ok(answer) => said["answer"] = of_answer(&answer),
            Err(error) => said["error"] = of_error(error),
        }
    } else {
        let (mut parts, mut stream) = (vec![], client.stream(request));
        while let Some(part) = stream.next().await {
            match part {
                Ok(Part::Text(text)) => parts.push(json!(["text", text])),
                Ok(Part::Thinking(text)) => parts.push(json!(["thinking", text])),
                Ok(Part::Call(call)) => parts.push(json!([vec![json!("call")], of_call(&call)].concat())),
                Ok(Part::Answer(answer)) => said["answer"] = of_answer(&answer),
                Err(error) => said["error"] = of_error(error),
            }
            if number("leave") > 0 && parts.len() as u64 == number("leave") {
                break;
            }
        }
        said["parts"] = json!(parts);
    }
    println!("{said}");
    if number("leave") > 0 {
        // The connection stays, so that only the call can tell that the loop was left.
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await??;
    }
    Ok(())
}
