// Streams an answer: go run ./example [ADDRESS]. BATON_API_KEY is the key, if one is needed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	baton "baton.example/go"
)

func main() {
	address := "127.0.0.1:8470"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	client, err := baton.New(address, baton.Options{Key: os.Getenv("BATON_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for part, err := range client.Stream(ctx, baton.Ask("Hello! My name is Ada.")) {
		if err != nil {
			log.Fatal(err) // a *baton.Error: Code, Reason, Field, RetryAfter
		}
		switch part := part.(type) {
		case baton.Text:
			fmt.Print(part)
		case *baton.Answer:
			fmt.Printf("\n%v, %d tokens\n", part.Reason, part.Finished.Usage.CompletionTokens)
		}
	}
}
