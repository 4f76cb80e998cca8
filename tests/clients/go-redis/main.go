// go-redis over RESP2, RESP3 and TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// must returns what was got without an error.
func must[T any](got T, err error) T {
	if err != nil {
		panic(err)
	}
	return got
}

func same(got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("expected %#v, got %#v", want, got))
	}
}

// is checks the result of a command.
func is[T any](command interface{ Result() (T, error) }, want T) {
	same(must(command.Result()), want)
}

func types(db *redis.Client) {
	is(db.FlushAll(ctx), "OK")
	is(db.Set(ctx, "s", "one", time.Minute), "OK")
	is(db.SetNX(ctx, "s", "two", 0), false)
	is(db.Append(ctx, "s", "!"), 4)
	is(db.IncrBy(ctx, "n", 42), 42)
	is(db.IncrByFloat(ctx, "x", 1.5), 1.5)
	is(db.MGet(ctx, "s", "none"), []any{"one!", nil})
	same(db.Get(ctx, "none").Err(), redis.Nil)
	if err := db.Incr(ctx, "s").Err(); err == nil || err.Error() != "ERR value is not an integer or out of range" {
		panic(err)
	}
	ttl := must(db.TTL(ctx, "s").Result())
	same(ttl > 0 && ttl <= time.Minute, true)

	is(db.HSet(ctx, "h", "a", 1, "b", 2), 2)
	is(db.HGetAll(ctx, "h"), map[string]string{"a": "1", "b": "2"})
	is(db.HIncrByFloat(ctx, "h", "a", 0.5), 1.5)
	is(db.RPush(ctx, "l", 1, 2, 3), 3)
	is(db.LRange(ctx, "l", 0, -1), []string{"1", "2", "3"})
	is(db.LMove(ctx, "l", "l", "left", "right"), "1")
	is(db.SAdd(ctx, "a", 1, 2, 3), 3)
	is(db.SAdd(ctx, "b", 2, 3), 2)
	is(db.SDiff(ctx, "a", "b"), []string{"1"})
	is(db.SInterCard(ctx, 0, "a", "b"), 2)
	is(db.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "x"}, redis.Z{Score: 2.5, Member: "y"}), 2)
	is(db.ZRangeWithScores(ctx, "z", 0, -1), []redis.Z{{Score: 1, Member: "x"}, {Score: 2.5, Member: "y"}})
	is(db.ZIncrBy(ctx, "z", 9, "x"), 10)
	is(db.ZPopMax(ctx, "z"), []redis.Z{{Score: 10, Member: "x"}})

	is(db.SetBit(ctx, "bits", 7, 1), 0)
	is(db.BitField(ctx, "bits", "get", "u8", 0, "incrby", "u4", 4, 1), []int64{1, 2})
	is(db.PFAdd(ctx, "p", 1, 2, 3), 1)
	is(db.PFCount(ctx, "p"), 3)
	is(db.GeoAdd(ctx, "g", &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}), 1)
	found := must(db.GeoSearchLocation(ctx, "g", &redis.GeoSearchLocationQuery{
		GeoSearchQuery: redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km"}, WithDist: true,
	}).Result())
	same(len(found) == 1 && found[0].Name == "Palermo" && found[0].Dist > 190 && found[0].Dist < 191, true)
	is(db.Sort(ctx, "l", &redis.Sort{Order: "DESC"}), []string{"3", "2", "1"})
	seen := 0
	for keys := db.Scan(ctx, 0, "*", 3).Iterator(); keys.Next(ctx); {
		seen++
	}
	is(db.DBSize(ctx), int64(seen))
	commands := must(db.Command(ctx).Result())
	same(commands["get"].ReadOnly, true)
}

func streams(db *redis.Client) {
	is(db.XAdd(ctx, &redis.XAddArgs{Stream: "st", ID: "1-1", Values: []any{"a", 1}}), "1-1")
	is(db.XAdd(ctx, &redis.XAddArgs{Stream: "st", ID: "1-*", Values: []any{"b", 2}}), "1-2")
	first := redis.XMessage{ID: "1-1", Values: map[string]any{"a": "1"}}
	is(db.XRangeN(ctx, "st", "-", "+", 1), []redis.XMessage{first})
	is(db.XGroupCreate(ctx, "st", "group", "0"), "OK")
	read := &redis.XReadGroupArgs{Group: "group", Consumer: "me", Streams: []string{"st", ">"}, Count: 1, Block: time.Second}
	is(db.XReadGroup(ctx, read), []redis.XStream{{Stream: "st", Messages: []redis.XMessage{first}}})
	pending := must(db.XPending(ctx, "st", "group").Result())
	same(pending.Consumers, map[string]int64{"me": 1})
	is(db.XAck(ctx, "st", "group", "1-1"), 1)
	must(db.XReadGroup(ctx, read).Result())
	claimed, next, err := db.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "st", Group: "group", Consumer: "you", Start: "0"}).Result()
	same([]any{len(claimed), next, err}, []any{1, "0-0", nil})
	same(must(db.XInfoStreamFull(ctx, "st", 10).Result()).Length, int64(2))
	same(must(db.XInfoGroups(ctx, "st").Result())[0].Pending, int64(1))
	is(db.XTrimMaxLen(ctx, "st", 1), 1)
	is(db.XLen(ctx, "st"), 1)
}

func pipelines(db *redis.Client) {
	replies := must(db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 1000 {
			pipe.Incr(ctx, "piped")
		}
		return nil
	}))
	same(replies[999].(*redis.IntCmd).Val(), int64(1000))
	must(db.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 1, 0)
		pipe.Incr(ctx, "t")
		return nil
	}))
	is(db.Get(ctx, "t"), "2")

	// Many clients increment with WATCH; those who lose try again.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for done := 0; done < 20; {
				err := db.Watch(ctx, func(tx *redis.Tx) error {
					n := must(tx.Get(ctx, "t").Int())
					_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						return pipe.Set(ctx, "t", n+1, 0).Err()
					})
					return err
				}, "t")
				if err == nil {
					done++
				} else if !errors.Is(err, redis.TxFailedErr) {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	is(db.Get(ctx, "t"), "162")
}

func scripts(db *redis.Client) {
	script := redis.NewScript("return {KEYS[1], ARGV[1], redis.call('incrby', KEYS[1], ARGV[1])}")
	same(must(script.Run(ctx, db, []string{"sc"}, 5).Result()), []any{"sc", "5", int64(5)})
	same(must(script.EvalSha(ctx, db, []string{"sc"}, 5).Result()), []any{"sc", "5", int64(10)})
	is(db.ScriptExists(ctx, script.Hash(), "nosuch"), []bool{true, false})
	code := "#!lua name=golib\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)"
	is(db.FunctionLoadReplace(ctx, code), "golib")
	same(must(db.FCall(ctx, "twice", nil, 21).Result()), int64(42))
	same(must(db.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "golib"}).Result())[0].Name, "golib")
	is(db.FunctionDelete(ctx, "golib"), "OK")
}

func messages(db *redis.Client) {
	sub := db.Subscribe(ctx, "news")
	must(sub.Receive(ctx))
	if err := sub.PSubscribe(ctx, "n*"); err != nil {
		panic(err)
	}
	must(sub.Receive(ctx))
	is(db.Publish(ctx, "news", "hello"), 2)
	channel := sub.Channel()
	same((<-channel).Pattern, "")
	same((<-channel).Pattern, "n*")
	shard := db.SSubscribe(ctx, "shard")
	must(shard.Receive(ctx))
	is(db.SPublish(ctx, "shard", "x"), 1)
	same((<-shard.Channel()).Payload, "x")
	sub.Close()
	shard.Close()
}

func blocking(db *redis.Client) {
	go func() {
		time.Sleep(50 * time.Millisecond)
		db.RPush(ctx, "queue", "job")
		time.Sleep(50 * time.Millisecond)
		db.ZAdd(ctx, "zq", redis.Z{Score: 3, Member: "m"})
	}()
	is(db.BLPop(ctx, 5*time.Second, "none", "queue"), []string{"queue", "job"})
	is(db.BZPopMin(ctx, 5*time.Second, "zq"), &redis.ZWithKey{Key: "zq", Z: redis.Z{Score: 3, Member: "m"}})
	same(db.BLPop(ctx, time.Second, "none").Err(), redis.Nil)
}

func main() {
	address := "localhost:" + os.Getenv("SERVER_PORT")
	authority := x509.NewCertPool()
	same(authority.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("TLS_CA")))), true)
	certificate := must(tls.LoadX509KeyPair(os.Getenv("TLS_CERT"), os.Getenv("TLS_KEY")))
	for _, options := range []*redis.Options{
		{Addr: address, Protocol: 2},
		{Addr: address, Protocol: 3},
		{
			Addr:      "localhost:" + os.Getenv("SERVER_TLS_PORT"),
			TLSConfig: &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{certificate}},
		},
	} {
		db := redis.NewClient(options)
		for _, part := range []func(*redis.Client){types, streams, pipelines, scripts, messages, blocking} {
			part(db)
		}
		db.Close()
	}
}
