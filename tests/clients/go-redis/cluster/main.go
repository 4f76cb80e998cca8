// go-redis's client for clusters, on three nodes that were put together: it goes where it is sent, also while slots move.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func same(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("%#v is not %#v", found, expected))
	}
}

func commands(db *redis.ClusterClient) {
	for number := range 300 {
		must(db.Set(ctx, fmt.Sprint("key:", number), number, 0).Result())
	}
	pipeline := db.Pipeline()
	var replies []*redis.IntCmd
	for number := range 300 {
		replies = append(replies, pipeline.Incr(ctx, fmt.Sprint("key:", number)))
	}
	must(pipeline.Exec(ctx))
	for number, reply := range replies {
		same(reply.Val(), int64(number+1))
	}
	same(must(db.DBSize(ctx).Result()), int64(300))
	var masters sync.Map
	err := db.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		masters.Store(node.String(), true)
		return nil
	})
	must(0, err)
	count := 0
	masters.Range(func(_, _ any) bool { count++; return true })
	same(count, 3)
	err = db.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{tag}a", 1, 0)
			pipe.Incr(ctx, "{tag}b")
			return nil
		})
		return err
	}, "{tag}a")
	must(0, err)
	same(must(db.MGet(ctx, "{tag}a", "{tag}b").Result()), []any{"1", "1"})
	shard := db.SSubscribe(ctx, "shard")
	must(shard.Receive(ctx))
	must(db.SPublish(ctx, "shard", "x").Result())
	same((<-shard.Channel()).Payload, "x")
	shard.Close()
}

// Counts while slots go to another node as a whole: each is counted once.
func moving(db *redis.ClusterClient, ports []string) {
	done := make(chan struct{})
	counts := make(map[string]int)
	var counting sync.WaitGroup
	counting.Add(1)
	go func() {
		defer counting.Done()
		for number := 0; ; number++ {
			select {
			case <-done:
				return
			default:
			}
			key := fmt.Sprint("count:", number%200)
			must(db.Incr(ctx, key).Result())
			counts[key]++
		}
	}()
	from := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ports[0]})
	to := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ports[1]})
	var first, last int
	for _, slots := range must(from.ClusterSlots(ctx).Result()) {
		if strings.HasSuffix(slots.Nodes[0].Addr, ":"+ports[0]) {
			first, last = slots.Start, slots.End
		}
	}
	node := must(to.Do(ctx, "CLUSTER", "MYID").Text())
	must(from.Do(ctx, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", node).Result())
	for {
		migrations := fmt.Sprint(must(from.Do(ctx, "CLUSTER", "GETSLOTMIGRATIONS").Result()))
		if strings.Contains(migrations, "failed") {
			panic(migrations)
		}
		if strings.Contains(migrations, "success") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	close(done)
	counting.Wait()
	for key, count := range counts {
		same(must(db.Get(ctx, key).Int()), count)
	}
}

func main() {
	ports := strings.Fields(os.Getenv("NODE_PORTS"))
	db := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + ports[0]}})
	err := db.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() })
	must(0, err)
	commands(db)
	moving(db, ports)
}
