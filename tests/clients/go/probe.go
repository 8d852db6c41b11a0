// Runs one request by the client, as its argument in JSON says, and prints in JSON what came of it. clients_test.py builds it in the client's module.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"time"

	baton "baton.example/go"
	pb "baton.example/go/baton/v1"

	"google.golang.org/protobuf/proto"
)

type asked struct {
	Address, Key, CA, Op     string
	Request                  []byte
	Attempts, Timeout, Leave int
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func callOf(call baton.ToolCall) []any {
	return []any{call.ID, call.Name, call.ArgumentsJSON, call.Complete}
}

func failureOf(err error) map[string]any {
	var failed *baton.Error
	if !errors.As(err, &failed) {
		log.Fatalf("not an Error of the client: %v", err)
	}
	said := map[string]any{"code": int(failed.Code), "message": failed.Message, "reason": failed.Reason, "metadata": failed.Metadata, "field": failed.Field, "final": failed.Final, "request_id": failed.RequestID}
	if failed.RetryAfter != nil {
		said["retry_after"] = failed.RetryAfter.Seconds()
	}
	return said
}

func answerOf(answer *baton.Answer) map[string]any {
	calls := []any{}
	for _, call := range answer.Calls {
		calls = append(calls, callOf(call))
	}
	return map[string]any{
		"text": answer.Text, "thinking": answer.Thinking, "calls": calls, "reason": strings.TrimPrefix(answer.Reason.String(), "FINISH_REASON_"),
		"tokens": answer.Finished.GetUsage().GetCompletionTokens(), "request_id": answer.Started.GetRequestId(),
	}
}

func main() {
	var asked asked
	check(json.Unmarshal([]byte(os.Args[1]), &asked))
	var request pb.ChatRequest
	check(proto.Unmarshal(asked.Request, &request))
	options := baton.Options{Key: asked.Key, Attempts: asked.Attempts}
	if asked.CA != "" {
		roots, err := os.ReadFile(asked.CA)
		check(err)
		options.Roots = roots
	}
	client, err := baton.New(asked.Address, options)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(asked.Timeout)*time.Second)
	defer cancel()
	said, parts := map[string]any{}, []any{}
	if asked.Op == "complete" {
		answer, err := client.Complete(ctx, &request)
		if err != nil {
			said["error"] = failureOf(err)
		} else {
			said["answer"] = answerOf(answer)
		}
	} else {
		for part, err := range client.Stream(ctx, &request) {
			if err != nil {
				said["error"] = failureOf(err)
				break
			}
			switch part := part.(type) {
			case baton.Text:
				parts = append(parts, []any{"text", string(part)})
			case baton.Thinking:
				parts = append(parts, []any{"thinking", string(part)})
			case baton.ToolCall:
				parts = append(parts, append([]any{"call"}, callOf(part)...))
			case *baton.Answer:
				said["answer"] = answerOf(part)
			}
			if asked.Leave > 0 && len(parts) == asked.Leave {
				break
			}
		}
		said["parts"] = parts
	}
	check(json.NewEncoder(os.Stdout).Encode(said))
	if asked.Leave > 0 {
		os.Stdin.Read(make([]byte, 1)) // the connection stays, so that only the call can tell that the loop was left
	}
}
