// The smallest useful client in Go, over gRPC: an answer that streams, a loop of tools, an answer that obeys a schema, and a document
// that stays cached. README.md, "Use it", has the lines that make the package baton.example/go/baton/v1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	pb "baton.example/go/baton/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	citySchema  = `{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}`
	floorSchema = `{"type": "object", "properties": {"floor": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["floor"], "additionalProperties": false}`
)

func user(text string) *pb.Message { return &pb.Message{Role: "user", Content: text} }

func stream(ctx context.Context, client pb.InferenceClient) error {
	answer, err := client.Chat(ctx, &pb.ChatRequest{Conversation: &pb.Conversation{Messages: []*pb.Message{user("Hello! My name is Ada.")}}})
	if err != nil {
		return err
	}
	for {
		event, err := answer.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(event.GetDelta().GetText())
	}
}

func ask(ctx context.Context, client pb.InferenceClient, request *pb.ChatRequest) (*pb.AnswerChoice, error) {
	answer, err := client.ChatUnary(ctx, &pb.ChatUnaryRequest{Chat: request})
	if err != nil {
		return nil, err
	}
	return answer.Choices[0], nil
}

// Asks, runs what the model calls, sends back the results, and asks again until it calls nothing.
func tools(ctx context.Context, client pb.InferenceClient) error {
	talk := &pb.Conversation{
		Messages: []*pb.Message{user("What is the weather in Oslo?")},
		Tools:    []*pb.Tool{{Name: "get_weather", Description: "Get the weather of a city.", ParametersJson: citySchema}},
	}
	for {
		choice, err := ask(ctx, client, &pb.ChatRequest{Conversation: talk})
		if err != nil {
			return err
		}
		turn := &pb.Message{Role: "assistant", Content: choice.Text}
		var results []*pb.Message
		for _, part := range choice.Parts {
			turn.ReasoningContent += part.GetThinking()
			call := part.GetToolCall()
			if call == nil || !part.Complete {
				continue
			}
			var arguments struct{ City string }
			if err := json.Unmarshal([]byte(call.ArgumentsJson), &arguments); err != nil {
				return err
			}
			fmt.Printf("%s(%s)\n", call.Name, arguments.City)
			turn.ToolCalls = append(turn.ToolCalls, call)
			results = append(results, &pb.Message{Role: "tool", ToolCallId: call.Id, Content: "sunny in " + arguments.City})
		}
		if choice.Finished.Reason != pb.FinishReason_FINISH_REASON_TOOL_CALLS {
			fmt.Println(choice.Text)
			return nil
		}
		talk.Messages = append(append(talk.Messages, turn), results...)
	}
}

// The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
func document(ctx context.Context, client pb.InferenceClient) error {
	var handbook strings.Builder
	for room := 10; room < 40; room++ {
		fmt.Fprintf(&handbook, "Room %d is on floor %d. ", room, room/10)
	}
	for _, room := range []int{25, 31} {
		choice, err := ask(ctx, client, &pb.ChatRequest{
			Conversation: &pb.Conversation{Messages: []*pb.Message{
				{Role: "system", Content: handbook.String(), Cache: &pb.CacheMark{Ttl: pb.CacheTtl_CACHE_TTL_1H}},
				user(fmt.Sprintf("On which floor is room %d?", room)),
			}},
			Constraint: &pb.Constraint{Kind: &pb.Constraint_JsonSchema{JsonSchema: floorSchema}},
		})
		if err != nil {
			return err
		}
		var place struct{ Floor int }
		if err := json.Unmarshal([]byte(choice.Text), &place); err != nil {
			return err
		}
		usage := choice.Finished.Usage
		fmt.Printf("floor %d: %d tokens written, %d found\n", place.Floor, usage.WrittenHourTokens, usage.CachedTokens)
	}
	return nil
}

func main() {
	address := "127.0.0.1:8470"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := pb.NewInferenceClient(connection)
	for _, example := range []func(context.Context, pb.InferenceClient) error{stream, tools, document} {
		if err := example(context.Background(), client); err != nil {
			log.Fatal(err)
		}
	}
}
