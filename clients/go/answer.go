package baton

import (
	"strings"

	pb "baton.example/go/baton/v1"
)

// Part of a stream: Text, Thinking, ToolCall, or *Answer.
type Part interface{ part() }

// Text is a piece of the answer itself.
type Text string

// Thinking is a piece of what the model wrote for itself before.
type Thinking string

// ToolCall is a call of a tool. Don't run it unless it is Complete: the answer ended inside it.
type ToolCall struct {
	ID, Name, ArgumentsJSON string
	Complete                bool
}

// Answer is one whole answer. Finished.Usage says what it took.
type Answer struct {
	Text, Thinking string
	Calls          []ToolCall
	Reason         pb.FinishReason
	Started        *pb.Started
	Finished       *pb.Finished
}

func (Text) part()     {}
func (Thinking) part() {}
func (ToolCall) part() {}
func (*Answer) part()  {}

// Message gives the answer as the next message of its conversation.
func (a *Answer) Message() *pb.Message {
	message := &pb.Message{Role: "assistant", Content: a.Text, ReasoningContent: a.Thinking}
	for _, call := range a.Calls {
		if call.Complete {
			message.ToolCalls = append(message.ToolCalls, &pb.ToolCall{Id: call.ID, Name: call.Name, ArgumentsJson: call.ArgumentsJSON})
		}
	}
	return message
}

// answerOf takes the first choice.
func answerOf(whole *pb.ChatUnaryResponse) *Answer {
	choice := whole.Choices[0]
	answer := &Answer{Text: choice.Text, Reason: choice.Finished.GetReason(), Started: whole.Started, Finished: choice.Finished}
	for _, part := range choice.Parts {
		answer.Thinking += part.GetThinking()
		if call := part.GetToolCall(); call != nil {
			answer.Calls = append(answer.Calls, ToolCall{call.Id, call.Name, call.ArgumentsJson, part.Complete})
		}
	}
	return answer
}

// fold has the messages of one answer, in their order, from one stream or from several that go on with it. answer is there after the last one.
type fold struct {
	text, thinking, arguments strings.Builder
	calls                     []ToolCall
	part                      *pb.PartStart
	started                   *pb.Started
	tokens                    uint32
	answer                    *Answer
}

// push takes a message and gives the parts that it completes. It skips events that it does not know.
func (f *fold) push(message event) (parts []Part) {
	if started := message.GetStarted(); started != nil {
		f.started = started
	} else if finished := message.GetFinished(); finished != nil {
		f.answer = &Answer{f.text.String(), f.thinking.String(), f.calls, finished.Reason, f.started, finished}
	} else if delta := message.GetDelta(); delta != nil {
		f.tokens += delta.Tokens
		if len(delta.Parts) == 0 && f.started.GetOutputFormat() == "" && delta.Text != "" {
			f.text.WriteString(delta.Text)
			parts = append(parts, Text(delta.Text))
		}
		for _, one := range delta.Parts {
			if part := f.pushPart(one); part != nil {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

func (f *fold) pushPart(one *pb.PartEvent) Part {
	switch event := one.Event.(type) {
	case *pb.PartEvent_Start:
		f.part = event.Start
		f.arguments.Reset()
	case *pb.PartEvent_Text:
		if event.Text == "" {
			return nil
		}
		if f.part.GetKind() == pb.PartStart_KIND_THINKING {
			f.thinking.WriteString(event.Text)
			return Thinking(event.Text)
		}
		f.text.WriteString(event.Text)
		return Text(event.Text)
	case *pb.PartEvent_ArgumentsJson:
		f.arguments.WriteString(event.ArgumentsJson)
	case *pb.PartEvent_End:
		if f.part.GetKind() == pb.PartStart_KIND_TOOL_CALL {
			call := ToolCall{f.part.Id, f.part.Name, f.arguments.String(), event.End.Complete}
			f.calls = append(f.calls, call)
			return call
		}
	}
	return nil
}
