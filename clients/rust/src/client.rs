//! The client. Clones of it share a connection.
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::answer::{Answer, Fold, Part};
use crate::error::{Error, Tries};
use crate::v1::{self, chat_response::Event, inference_client::InferenceClient};

const MAX_ANSWER_BYTES: u32 = 16 << 20;
const SEED_BITS: u32 = 52; // a double holds it

/// How the connection is secured.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    #[default]
    Off,
    /// With the roots of the system.
    System,
    /// With these roots, in PEM.
    Roots(Vec<u8>),
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tenant's API key, or empty.
    pub key: String,
    pub tls: Tls,
    /// How often a request is sent at most, or is gone on with, before something comes.
    pub attempts: u32,
    /// For the whole of a request, retries too. The server is told.
    pub timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { key: String::new(), tls: Tls::Off, attempts: 4, timeout: None }
    }
}

/// A text of the user's as a request.
impl From<&str> for v1::ChatRequest {
    fn from(text: &str) -> v1::ChatRequest {
        let message = v1::Message { role: "user".into(), content: text.into(), ..Default::default() };
        v1::ChatRequest { conversation: Some(v1::Conversation { messages: vec![message], ..Default::default() }), ..Default::default() }
    }
}

/// Many tasks may use it and its clones. `rpc` has the methods that it does not wrap; `authorize` gives them the key.
#[derive(Clone)]
pub struct Client {
    pub rpc: InferenceClient<Channel>,
    key: Option<AsciiMetadataValue>,
    attempts: u32,
    timeout: Option<Duration>,
}

/// The answer of Chat or of Resume.
enum Call {
    Chat(Streaming<v1::ChatResponse>),
    Resume(Streaming<v1::ResumeResponse>),
}

impl Call {
    async fn next(&mut self) -> Result<Option<Option<Event>>, Status> {
        Ok(match self {
            Call::Chat(stream) => stream.message().await?.map(|message| message.event),
            Call::Resume(stream) => stream.message().await?.map(|message| message.event.map(Event::from)),
        })
    }
}

impl Client {
    /// address: host and port. It connects at the first call, in the runtime of tokio in which it was made.
    pub fn new(address: &str, options: Options) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
        let tls = match options.tls {
            Tls::Off => None,
            Tls::System => Some(ClientTlsConfig::new().with_native_roots()),
            Tls::Roots(pem) => Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))),
        };
        let mut endpoint = Endpoint::from_shared(format!("{}://{address}", if tls.is_some() { "https" } else { "http" }))?;
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls)?;
        }
        let key = if options.key.is_empty() { None } else { Some(format!("Bearer {}", options.key).parse()?) };
        let rpc = InferenceClient::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER_BYTES as usize + (1 << 20));
        Ok(Client { rpc, key, attempts: options.attempts, timeout: options.timeout })
    }

    /// The message with the client's key.
    pub fn authorize<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        request
    }

    fn request<T>(&self, message: T, tries: &Tries, context: &Context) -> Request<T> {
        let mut request = self.authorize(message);
        if let Some(end) = tries.end {
            request.set_timeout(end - Instant::now());
        }
        context.inject(request.metadata_mut());
        request
    }

    /// One whole answer.
    pub async fn complete(&self, request: impl Into<v1::ChatRequest>) -> Result<Answer, Error> {
        let whole = v1::ChatUnaryRequest { chat: Some(named(request.into())), max_answer_bytes: MAX_ANSWER_BYTES };
        let context = Context::current();
        let (mut rpc, mut tries) = (self.rpc.clone(), Tries::new(self.attempts, self.timeout));
        loop {
            tries.begin();
            match tries.within(rpc.chat_unary(self.request(whole.clone(), &tries, &context))).await {
                Ok(answer) => return Answer::of(answer.into_inner()).ok_or_else(|| Status::internal("an answer without a choice").into()),
                Err(error) => tries.wait(error).await?,
            }
        }
    }

    /// Parts as they come, and last the whole answer. After a cut it goes on behind the last token that came, on whichever router. Dropping the stream
    /// cancels the request.
    pub fn stream(&self, request: impl Into<v1::ChatRequest>) -> Pin<Box<dyn Stream<Item = Result<Part, Error>> + Send>> {
        let (client, request, context) = (self.clone(), named(request.into()), Context::current());
        Box::pin(async_stream::try_stream! {
            let (mut fold, mut tries) = (Fold::default(), Tries::new(client.attempts, client.timeout));
            loop {
                tries.begin();
                let error = match tries.within(client.open(&request, &fold, &tries, &context)).await {
                    Err(error) => error,
                    Ok(mut call) => loop {
                        match tries.within(call.next()).await {
                            Ok(Some(event)) => {
                                tries.go_well();
                                for part in fold.push(event) {
                                    let last = matches!(part, Part::Answer(_));
                                    yield part;
                                    if last {
                                        return;
                                    }
                                }
                            }
                            Ok(None) => break Status::unavailable("the stream ended before its answer").into(),
                            Err(error) => break error,
                        }
                    },
                };
                tries.wait(error).await?;
            }
        })
    }

    async fn open(&self, request: &v1::ChatRequest, fold: &Fold, tries: &Tries, context: &Context) -> Result<Call, Status> {
        let mut rpc = self.rpc.clone();
        Ok(match &fold.started {
            None => Call::Chat(rpc.chat(self.request(request.clone(), tries, context)).await?.into_inner()),
            Some(started) => {
                let message = resumed(request.clone(), started, fold.tokens);
                Call::Resume(rpc.resume(self.request(message, tries, context)).await?.into_inner())
            }
        })
    }
}

/// The request with an idempotency key and a seed, unless it has them: what is sent again takes the answer that was begun, on any router.
fn named(mut request: v1::ChatRequest) -> v1::ChatRequest {
    let options = request.options.get_or_insert_default();
    if options.idempotency_key.is_empty() {
        options.idempotency_key = format!("{:032x}", rand::random::<u128>());
    }
    request.sampling.get_or_insert_default().seed.get_or_insert_with(|| rand::random::<u64>() >> (64 - SEED_BITS));
    request
}

/// Asks for what follows the tokens that came. The build pins the answer to the bits that it was begun with.
fn resumed(mut chat: v1::ChatRequest, started: &v1::Started, tokens: u32) -> v1::ResumeRequest {
    if !started.build.is_empty() {
        chat.options.get_or_insert_default().build = started.build.clone();
    }
    let request = Some(v1::resume_request::Request::Chat(chat));
    v1::ResumeRequest { request_id: started.request_id.clone(), after_tokens: vec![tokens], request }
}

/// The caller's trace context, from when the request was made.
#[cfg(feature = "opentelemetry")]
struct Context(opentelemetry::Context);

#[cfg(feature = "opentelemetry")]
impl Context {
    fn current() -> Context {
        Context(opentelemetry::Context::current())
    }

    fn inject(&self, metadata: &mut MetadataMap) {
        struct Injector<'a>(&'a mut MetadataMap);
        impl opentelemetry::propagation::Injector for Injector<'_> {
            fn set(&mut self, key: &str, value: String) {
                if let (Ok(key), Ok(value)) = (key.parse::<tonic::metadata::AsciiMetadataKey>(), value.parse()) {
                    self.0.insert(key, value);
                }
            }
        }
        opentelemetry::global::get_text_map_propagator(|propagator| propagator.inject_context(&self.0, &mut Injector(metadata)));
    }
}

#[cfg(not(feature = "opentelemetry"))]
struct Context;

#[cfg(not(feature = "opentelemetry"))]
impl Context {
    fn current() -> Context {
        Context
    }

    fn inject(&self, _: &mut MetadataMap) {}
}
