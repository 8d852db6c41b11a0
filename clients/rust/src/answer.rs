//! Typed parts of what the model wrote, and the stream of an answer folded into them.
use crate::v1::{self, chat_response::Event, part_event, part_start::Kind};

/// A call of a tool. Don't run it unless it is complete: the answer ended inside it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments_json: String,
    pub complete: bool,
}

/// One whole answer. `finished.usage` says what it took.
#[derive(Clone, Debug)]
pub struct Answer {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<ToolCall>,
    pub reason: v1::FinishReason,
    pub started: v1::Started,
    pub finished: v1::Finished,
}

/// A part of a stream, which has the answer last.
#[derive(Clone, Debug)]
pub enum Part {
    /// A piece of the answer itself.
    Text(String),
    /// A piece of what the model wrote for itself before.
    Thinking(String),
    Call(ToolCall),
    Answer(Box<Answer>),
}

impl Answer {
    /// The answer as the next message of its conversation.
    pub fn message(&self) -> v1::Message {
        let complete = self.calls.iter().filter(|call| call.complete).cloned();
        v1::Message {
            role: "assistant".into(),
            content: self.text.clone(),
            reasoning_content: self.thinking.clone(),
            tool_calls: complete.map(|call| v1::ToolCall { id: call.id, name: call.name, arguments_json: call.arguments_json }).collect(),
            ..Default::default()
        }
    }

    /// The first choice.
    pub(crate) fn of(whole: v1::ChatUnaryResponse) -> Option<Answer> {
        let choice = whole.choices.into_iter().next()?;
        let finished = choice.finished.unwrap_or_default();
        let (mut thinking, mut calls) = (String::new(), vec![]);
        for part in choice.parts {
            match part.part {
                Some(v1::answer_part::Part::Thinking(text)) => thinking += &text,
                Some(v1::answer_part::Part::ToolCall(call)) => {
                    calls.push(ToolCall { id: call.id, name: call.name, arguments_json: call.arguments_json, complete: part.complete })
                }
                _ => {}
            }
        }
        Some(Answer { text: choice.text, thinking, calls, reason: finished.reason(), started: whole.started.unwrap_or_default(), finished })
    }
}

/// The messages of one answer, in their order, from one stream or from several that go on with it.
#[derive(Default)]
pub(crate) struct Fold {
    pub started: Option<v1::Started>,
    pub tokens: u32,
    text: String,
    thinking: String,
    calls: Vec<ToolCall>,
    start: v1::PartStart,
    arguments: String,
}

impl Fold {
    /// The parts that the event completes; the answer is the last one. Events that are not known are skipped.
    pub fn push(&mut self, event: Option<Event>) -> Vec<Part> {
        match event {
            Some(Event::Started(started)) => self.started = Some(started),
            Some(Event::Finished(finished)) => {
                return vec![Part::Answer(Box::new(Answer {
                    text: self.text.clone(),
                    thinking: self.thinking.clone(),
                    calls: self.calls.clone(),
                    reason: finished.reason(),
                    started: self.started.clone().unwrap_or_default(),
                    finished,
                }))];
            }
            Some(Event::Delta(delta)) => {
                self.tokens += delta.tokens;
                let in_parts = self.started.as_ref().is_some_and(|started| !started.output_format.is_empty());
                if !delta.parts.is_empty() || in_parts {
                    return delta.parts.into_iter().filter_map(|part| self.push_part(part.event?)).collect();
                }
                if !delta.text.is_empty() {
                    self.text += &delta.text;
                    return vec![Part::Text(delta.text)];
                }
            }
            Some(Event::Progress(_)) | None => {}
        }
        vec![]
    }

    fn push_part(&mut self, event: part_event::Event) -> Option<Part> {
        match event {
            part_event::Event::Start(start) => {
                self.start = start;
                self.arguments.clear();
            }
            part_event::Event::Text(text) if text.is_empty() => {}
            part_event::Event::Text(text) if self.start.kind() == Kind::Thinking => {
                self.thinking += &text;
                return Some(Part::Thinking(text));
            }
            part_event::Event::Text(text) => {
                self.text += &text;
                return Some(Part::Text(text));
            }
            part_event::Event::ArgumentsJson(piece) => self.arguments += &piece,
            part_event::Event::End(end) if self.start.kind() == Kind::ToolCall => {
                let call = ToolCall {
                    id: self.start.id.clone(),
                    name: self.start.name.clone(),
                    arguments_json: std::mem::take(&mut self.arguments),
                    complete: end.complete,
                };
                self.calls.push(call.clone());
                return Some(Part::Call(call));
            }
            part_event::Event::End(_) => {}
        }
        None
    }
}

impl From<v1::resume_response::Event> for Event {
    fn from(event: v1::resume_response::Event) -> Event {
        use v1::resume_response::Event as Resumed;
        match event {
            Resumed::Started(started) => Event::Started(started),
            Resumed::Delta(delta) => Event::Delta(delta),
            Resumed::Finished(finished) => Event::Finished(finished),
            Resumed::Progress(progress) => Event::Progress(progress),
        }
    }
}
