//! Makes calls by plain tonic, as lines of JSON on standard input say, and tells in lines of JSON how they go: "headers", "first" (message) and "end".
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use baton_client::v1::{self, inference_client::InferenceClient};
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{AsciiMetadataKey, KeyAndValueRef, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status, Streaming};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn plain(metadata: &MetadataMap) -> Value {
    let pairs = metadata.iter().map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => (key.to_string(), json!(value.to_str().unwrap_or_default())),
        KeyAndValueRef::Binary(key, value) => (key.to_string(), json!(STANDARD.encode(value.to_bytes().unwrap_or_default()))),
    });
    Value::Object(pairs.collect())
}

/// tonic takes the details out of the metadata.
fn with_details(status: &Status) -> Value {
    let mut trailers = plain(status.metadata());
    if !status.details().is_empty() {
        trailers["grpc-status-details-bin"] = json!(STANDARD.encode(status.details()));
    }
    trailers
}

fn tell(event: Value) {
    println!("{event}");
}

/// All that a call has brought.
#[derive(Default)]
struct Said {
    headers: Value,
    count: u64,
    last: String,
    kept: Vec<String>,
}

impl Said {
    fn take(&mut self, asked: &Value, message: &impl Message) {
        self.count += 1;
        self.last = STANDARD.encode(message.encode_to_vec());
        if asked["keep"] == true {
            self.kept.push(self.last.clone());
        }
        if self.count == 1 {
            tell(json!({"id": asked["id"], "event": "first"}));
        }
    }

    fn head<T>(&mut self, asked: &Value, response: &Response<T>) {
        self.headers = plain(response.metadata());
        tell(json!({"id": asked["id"], "event": "headers", "headers": self.headers}));
    }

    async fn stream<T: Message>(
        &mut self,
        asked: &Value,
        response: Result<Response<Streaming<T>>, Status>,
        read: &Notify,
    ) -> Result<MetadataMap, Status> {
        let response = response?;
        self.head(asked, &response);
        let mut stream = response.into_inner();
        while let Some(message) = stream.message().await? {
            self.take(asked, &message);
            if self.count == 1 && asked["stall"] == true {
                read.notified().await;
            }
        }
        Ok(stream.trailers().await?.unwrap_or_default())
    }

    /// tonic adds the trailers of a unary call to its metadata.
    fn one<T: Message>(&mut self, asked: &Value, response: Result<Response<T>, Status>) -> Result<MetadataMap, Status> {
        let response = response?;
        self.head(asked, &response);
        self.take(asked, response.get_ref());
        Ok(response.metadata().clone())
    }
}

async fn run(mut rpc: InferenceClient<Channel>, asked: &Value, read: &Notify, said: &mut Said) -> Result<MetadataMap, Status> {
    let bytes = STANDARD.decode(asked["request"].as_str().unwrap_or_default()).unwrap_or_default();
    if asked["gzip"] == true {
        rpc = rpc.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
    }
    fn request<T: Message + Default>(asked: &Value, bytes: &[u8]) -> Result<Request<T>, Status> {
        let mut request = Request::new(T::decode(bytes).map_err(|error| Status::internal(error.to_string()))?);
        for pair in asked["metadata"].as_array().into_iter().flatten() {
            let (key, value) = (pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default());
            let key = AsciiMetadataKey::from_bytes(key.as_bytes()).map_err(|error| Status::internal(error.to_string()))?;
            request.metadata_mut().append(key, value.parse().map_err(|_| Status::internal("a value that is no ASCII"))?);
        }
        if let Some(deadline) = asked["deadline_ns"].as_u64() {
            request.set_timeout(Duration::from_nanos(deadline));
        }
        Ok(request)
    }
    match asked["method"].as_str().unwrap_or_default() {
        "baton.v1.Inference/Chat" => said.stream(asked, rpc.chat(request(asked, &bytes)?).await, read).await,
        "baton.v1.Inference/Generate" => said.stream(asked, rpc.generate(request(asked, &bytes)?).await, read).await,
        "baton.v1.Inference/ChatUnary" => said.one(asked, rpc.chat_unary(request::<v1::ChatUnaryRequest>(asked, &bytes)?).await),
        "baton.v1.Inference/GenerateUnary" => said.one(asked, rpc.generate_unary(request(asked, &bytes)?).await),
        "baton.v1.Inference/ListModels" => said.one(asked, rpc.list_models(request(asked, &bytes)?).await),
        other => Err(Status::internal(format!("the test has no {other} in Rust"))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines();
    let settings: Value = serde_json::from_str(&lines.next().ok_or("no settings")??)?;
    let text = |key: &str| settings[key].as_str().unwrap_or_default();
    let mut endpoint = Endpoint::from_shared(format!("{}://{}", if text("ca").is_empty() { "http" } else { "https" }, text("address")))?;
    if !text("ca").is_empty() {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(text("ca"))?));
        if !text("cert").is_empty() {
            tls = tls.identity(Identity::from_pem(std::fs::read(text("cert"))?, std::fs::read(text("key"))?));
        }
        endpoint = endpoint.tls_config(tls)?;
    }
    if let Some(seconds) = settings["keepalive_seconds"].as_u64() {
        endpoint = endpoint.http2_keep_alive_interval(Duration::from_secs(seconds)).keep_alive_while_idle(true);
    }
    let mut rpc = InferenceClient::new(endpoint.connect_lazy());
    if let Some(most) = settings["max_receive"].as_u64() {
        rpc = rpc.max_decoding_message_size(most as usize);
    }
    let mut calls = HashMap::new();
    for line in lines {
        let asked: Value = serde_json::from_str(&line?)?;
        let id = asked["id"].as_u64().unwrap_or_default();
        match asked["op"].as_str().unwrap_or_default() {
            "call" => {
                let (rpc, read) = (rpc.clone(), Arc::new(Notify::new()));
                let (cancel, reading) = (Arc::new(Notify::new()), read.clone());
                let cancelled = cancel.clone();
                tokio::spawn(async move {
                    let mut said = Said { headers: json!({}), ..Default::default() };
                    let end = tokio::select! {
                        end = run(rpc, &asked, &reading, &mut said) => end,
                        _ = cancelled.notified() => Err(Status::cancelled("by the test")),
                    };
                    let (code, message, trailers) = match &end {
                        Ok(trailers) => (0, "", plain(trailers)),
                        Err(status) => (status.code() as i32, status.message(), with_details(status)),
                    };
                    tell(json!({
                        "id": asked["id"], "event": "end", "code": code, "message": message, "headers": said.headers, "trailers": trailers,
                        "count": said.count, "last": said.last, "kept": said.kept,
                    }));
                });
                calls.insert(id, (cancel, read));
            }
            "cancel" => calls[&id].0.notify_one(),
            "read" => calls[&id].1.notify_one(),
            _ => return Ok(()),
        }
    }
    Ok(())
}
