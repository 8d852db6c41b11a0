// The same as client.go over HTTP, with OpenAI's own package: go get github.com/openai/openai-go/v3.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

type object = map[string]any

func stream(ctx context.Context, client openai.Client, model string) error {
	events := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello! My name is Ada.")},
	})
	for events.Next() {
		for _, choice := range events.Current().Choices {
			fmt.Print(choice.Delta.Content)
		}
	}
	fmt.Println()
	return events.Err()
}

// Asks, runs what the model calls, sends back the results, and asks again until it calls nothing.
func tools(ctx context.Context, client openai.Client, model string) error {
	request := openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Oslo?")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name:        "get_weather",
			Description: openai.String("Get the weather of a city."),
			Parameters:  object{"type": "object", "properties": object{"city": object{"type": "string"}}, "required": []string{"city"}},
		})},
	}
	for {
		answer, err := client.Chat.Completions.New(ctx, request)
		if err != nil {
			return err
		}
		choice := answer.Choices[0]
		if choice.FinishReason != "tool_calls" {
			fmt.Println(choice.Message.Content)
			return nil
		}
		request.Messages = append(request.Messages, choice.Message.ToParam())
		for _, call := range choice.Message.ToolCalls {
			var arguments struct{ City string }
			if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil {
				return err
			}
			fmt.Printf("%s(%s)\n", call.Function.Name, arguments.City)
			request.Messages = append(request.Messages, openai.ToolMessage("sunny in "+arguments.City, call.ID))
		}
	}
}

// The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
func document(ctx context.Context, client openai.Client, model string) error {
	var handbook strings.Builder
	for room := 10; room < 40; room++ {
		fmt.Fprintf(&handbook, "Room %d is on floor %d. ", room, room/10)
	}
	marked := openai.ChatCompletionContentPartTextParam{Text: handbook.String()}
	marked.SetExtraFields(object{"cache_control": object{"type": "ephemeral", "ttl": "1h"}})
	schema := object{"type": "object", "required": []string{"floor"}, "additionalProperties": false,
		"properties": object{"floor": object{"type": "integer", "minimum": 0, "maximum": 9}}}
	for _, room := range []int{25, 31} {
		answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: model,
			Messages: []openai.ChatCompletionMessageParamUnion{
				openai.SystemMessage([]openai.ChatCompletionContentPartTextParam{marked}),
				openai.UserMessage(fmt.Sprintf("On which floor is room %d?", room)),
			},
			ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
				JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "place", Schema: schema, Strict: openai.Bool(true)},
			}},
		})
		if err != nil {
			return err
		}
		var place struct{ Floor int }
		if err := json.Unmarshal([]byte(answer.Choices[0].Message.Content), &place); err != nil {
			return err
		}
		fmt.Printf("floor %d: %d tokens found\n", place.Floor, answer.Usage.PromptTokensDetails.CachedTokens)
	}
	return nil
}

func main() {
	address := "http://127.0.0.1:8000/v1"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ctx := context.Background()
	client := openai.NewClient(option.WithBaseURL(address), option.WithAPIKey("any"))
	models, err := client.Models.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, example := range []func(context.Context, openai.Client, string) error{stream, tools, document} {
		if err := example(ctx, client, models.Data[0].ID); err != nil {
			log.Fatal(err)
		}
	}
}
