// Made recorded.json: fills an empty Redis through Asynq's public API and prints every key, beside what Asynq's own
// inspector says of each task. Needs Go 1.24 and modules, which CI has not; repeat it for a new release:
//
//	go mod init record && go get github.com/hibiken/asynq@v0.26.0 && go run record.go 127.0.0.1:6379 >recorded.json
//
// It takes 10 s: so long until the servers have done and said what they do and say.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// said is what the inspector says of a task: bytes as hex, times as unix seconds, 0 for none.
type said struct {
	Queue, State, Type, Payload, LastErr, Group, Result         string
	MaxRetry, Retried                                           int
	Next, LastFailed, Deadline, CompletedAt, Timeout, Retention int64
	Headers                                                     map[string]string
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func handlers(hold chan struct{}) *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.HandleFunc("hold", func(ctx context.Context, t *asynq.Task) error { <-hold; return nil })
	mux.HandleFunc("fail", func(ctx context.Context, t *asynq.Task) error { return errors.New("smtp: no route to host") })
	mux.HandleFunc("die", func(ctx context.Context, t *asynq.Task) error { return fmt.Errorf("broken: %w", asynq.SkipRetry) })
	mux.HandleFunc("work", func(ctx context.Context, t *asynq.Task) error {
		_, err := t.ResultWriter().Write([]byte("42 sent"))
		return err
	})
	return mux
}

func fill(opt asynq.RedisClientOpt, inspector *asynq.Inspector) map[string][2]string {
	client, names := asynq.NewClient(opt), map[string][2]string{}
	put := func(name string, task *asynq.Task, opts ...asynq.Option) {
		info, err := client.Enqueue(task, opts...)
		must(err)
		names[name] = [2]string{info.Queue, info.ID}
	}
	mail, grouped := asynq.Queue("mail"), asynq.Queue("grouped")
	in2h := time.Now().Add(2 * time.Hour)
	put("active", asynq.NewTask("hold", []byte(`{"user":1}`)), mail, asynq.Timeout(time.Hour), asynq.Deadline(in2h))
	put("active unique", asynq.NewTask("hold", []byte("u")), mail, asynq.Unique(time.Hour))
	put("retry", asynq.NewTask("fail", []byte(`{"user":2}`)), mail, asynq.MaxRetry(3))
	put("archived", asynq.NewTask("die", []byte{0xff, 0x00, 0x01}), mail)
	put("completed", asynq.NewTask("work", nil), mail, asynq.Retention(time.Hour))
	for i := range 5 {
		put(fmt.Sprint("aggregating ", i), asynq.NewTask("digest", []byte(fmt.Sprint(i))), grouped, asynq.Group("news:daily"))
	}
	put("aggregating alone", asynq.NewTask("digest", nil), grouped, asynq.Group("weekly"))
	time.Sleep(9 * time.Second)
	must(inspector.PauseQueue("mail"))
	time.Sleep(time.Second)

	headers := map[string]string{"trace": "abc", "tenant": "acme"}
	put("pending first", asynq.NewTaskWithHeaders("welcome", []byte(`{"to":"ä"}`), headers), mail)
	put("pending unique", asynq.NewTask("welcome", []byte("x")), mail, asynq.Unique(time.Hour), asynq.TaskID("my:own:id"))
	put("scheduled", asynq.NewTask("remind", []byte(`[1,2]`)), mail, asynq.ProcessIn(2*time.Hour), asynq.MaxRetry(0))
	put("scheduled unique", asynq.NewTask("remind", []byte(`[3]`)), mail, asynq.ProcessIn(3*time.Hour), asynq.Unique(4*time.Hour))
	put("ran by hand", asynq.NewTask("remind", []byte(`[4]`)), mail, asynq.ProcessIn(3*time.Hour))
	must(inspector.RunTask("mail", names["ran by hand"][1]))
	put("archived by hand", asynq.NewTask("remind", []byte(`[5]`)), mail)
	must(inspector.ArchiveTask("mail", names["archived by hand"][1]))
	return names
}

func ask(inspector *asynq.Inspector, names map[string][2]string) map[string]said {
	says := map[string]said{}
	for _, at := range names {
		i, err := inspector.GetTaskInfo(at[0], at[1])
		must(err)
		says[at[1]] = said{
			Queue: i.Queue, State: i.State.String(), Type: i.Type, LastErr: i.LastErr, Group: i.Group,
			Payload: hex.EncodeToString(i.Payload), Result: hex.EncodeToString(i.Result),
			MaxRetry: i.MaxRetry, Retried: i.Retried, Headers: i.Headers,
			Next: unix(i.NextProcessAt), LastFailed: unix(i.LastFailedAt), Deadline: unix(i.Deadline),
			CompletedAt: unix(i.CompletedAt), Timeout: int64(i.Timeout.Seconds()), Retention: int64(i.Retention.Seconds()),
		}
	}
	return says
}

func dump(r *redis.Client) map[string]any {
	ctx, keys := context.Background(), map[string]any{}
	for iter := r.Scan(ctx, 0, "*", 100).Iterator(); iter.Next(ctx); {
		key := iter.Val()
		kind := r.Type(ctx, key).Val()
		var value any
		switch kind {
		case "string":
			value = hex.EncodeToString([]byte(r.Get(ctx, key).Val()))
		case "list":
			value = r.LRange(ctx, key, 0, -1).Val()
		case "set":
			value = r.SMembers(ctx, key).Val()
		case "zset":
			scores := map[string]float64{}
			for _, z := range r.ZRangeWithScores(ctx, key, 0, -1).Val() {
				scores[z.Member.(string)] = z.Score
			}
			value = scores
		case "hash":
			fields := map[string]string{}
			for name, data := range r.HGetAll(ctx, key).Val() {
				fields[name] = hex.EncodeToString([]byte(data))
			}
			value = fields
		}
		keys[key] = map[string]any{"type": kind, "value": value}
	}
	return keys
}

func main() {
	address, hold := os.Args[1], make(chan struct{})
	opt := asynq.RedisClientOpt{Addr: address}
	inspector := asynq.NewInspector(opt)
	server := asynq.NewServer(opt, asynq.Config{
		Concurrency: 6, Queues: map[string]int{"mail": 3, "grouped": 1}, LogLevel: asynq.ErrorLevel,
		GroupMaxSize: 2, GroupGracePeriod: time.Hour,
		GroupAggregator: asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task { <-hold; return nil }),
		RetryDelayFunc:  func(n int, e error, t *asynq.Task) time.Duration { return time.Hour },
	})
	must(server.Start(handlers(hold)))
	names := fill(opt, inspector)
	says := ask(inspector, names)
	keys := dump(redis.NewClient(&redis.Options{Addr: address, Protocol: 2}))
	out, err := json.MarshalIndent(map[string]any{
		"commit": "785bb72", "recorded_at_ms": time.Now().UnixMilli(), "names": names, "says": says, "keys": keys,
	}, "", " ")
	must(err)
	fmt.Println(string(out))
	os.Exit(0) // what is held stays held
}
