// SPDX-License-Identifier: BSD-3-Clause
// The openai package for Go: client BASE_URL. Prints one result line per check, as the Python programs do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func report(name string, good bool, detail ...any) {
	if good {
		fmt.Println("pass", name)
	} else {
		fmt.Println("FAIL", name, "--", fmt.Sprint(detail...))
	}
}

func ask(tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     "llama",
		MaxTokens: openai.Int(tokens),
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Which block is cached?")},
	}
}

func readStream(client openai.Client) (int, error) {
	stream := client.Chat.Completions.NewStreaming(context.Background(), ask(5))
	pieces := 0
	for stream.Next() {
		if c := stream.Current(); len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
			pieces++
		}
	}
	return pieces, stream.Err()
}

func main() {
	client := openai.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey("none"), option.WithMaxRetries(0))
	models, err := client.Models.List(context.Background())
	report("Go: models", err == nil && len(models.Data) == 1 && models.Data[0].ID == "llama", err)
	answer, err := client.Chat.Completions.New(context.Background(), ask(4))
	report("Go: chat", err == nil && answer.Usage.CompletionTokens == 4 && answer.Choices[0].Message.Content != "", err)
	pieces, err := readStream(client)
	report("Go: streamed chat", err == nil && pieces == 5, pieces, err)
	var group sync.WaitGroup
	results := make([]bool, 20)
	for i := range results {
		group.Add(1)
		go func() {
			defer group.Done()
			n, err := readStream(client)
			results[i] = err == nil && n == 5
		}()
	}
	group.Wait()
	good := 0
	for _, r := range results {
		if r {
			good++
		}
	}
	report("Go: 20 streams at once", good == 20, good)
	unknown := ask(4)
	unknown.Model = "none"
	_, err = client.Chat.Completions.New(context.Background(), unknown)
	var failure *openai.Error
	report("Go: error of an unknown model", errors.As(err, &failure) && failure.StatusCode == 404 && failure.Message != "", err)
}
