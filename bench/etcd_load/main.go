// Writes to etcd from some clients at once, and prints the writes a second.
//
//	etcd-load -endpoint 127.0.0.1:2379 -clients 50 -seconds 5
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "the leader")
	clients := flag.Int("clients", 50, "writers, each of which waits for its reply")
	connections := flag.Int("connections", 8, "connections that they share")
	seconds := flag.Int("seconds", 5, "for so long")
	flag.Parse()
	var writers sync.WaitGroup
	var writes, failures atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*seconds)*time.Second)
	defer cancel()
	pool := make([]*clientv3.Client, *connections)
	for i := range pool {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		pool[i] = client
	}
	value := strings.Repeat("x", 100)
	for i := range *clients {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for ctx.Err() == nil {
				key := fmt.Sprintf("key:%012d", rand.Intn(100_000))
				if _, err := pool[i%len(pool)].Put(ctx, key, value); err == nil {
					writes.Add(1)
				} else if ctx.Err() == nil {
					failures.Add(1)
				}
			}
		}()
	}
	writers.Wait()
	fmt.Printf("%.1f writes per second, %d failures\n", float64(writes.Load())/float64(*seconds), failures.Load())
}
