/* hiredis: the blocking interface, pipelines, and the asynchronous interface with a loop of its own. */

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static redisContext *db;

static void fail(int line, const char *what, const char *got) {
    fprintf(stderr, "check.c:%d: %s: got %s\n", line, what, got ? got : "nothing");
    exit(1);
}

/* A reply as text: elements between brackets, errors after a minus. */
static void show(const redisReply *reply, char *out, size_t room) {
    size_t at = 0;
    switch (reply->type) {
    case REDIS_REPLY_INTEGER: snprintf(out, room, ":%lld", reply->integer); break;
    case REDIS_REPLY_NIL: snprintf(out, room, "nil"); break;
    case REDIS_REPLY_ERROR: snprintf(out, room, "-%s", reply->str); break;
    case REDIS_REPLY_STATUS: snprintf(out, room, "+%s", reply->str); break;
    case REDIS_REPLY_STRING: snprintf(out, room, "%s", reply->str); break;
    case REDIS_REPLY_ARRAY:
        at += (size_t)snprintf(out, room, "[");
        for (size_t i = 0; i < reply->elements; i++) {
            if (i) at += (size_t)snprintf(out + at, room - at, " ");
            show(reply->element[i], out + at, room - at);
            at += strlen(out + at);
        }
        snprintf(out + at, room - at, "]");
        break;
    default: snprintf(out, room, "?%d", reply->type);
    }
}

static void expect(int line, redisReply *reply, const char *want) {
    char got[4096];
    if (!reply) fail(line, db->errstr, NULL);
    show(reply, got, sizeof got);
    if (strcmp(got, want)) fail(line, want, got);
    freeReplyObject(reply);
}

#define CALL(want, ...) expect(__LINE__, redisCommand(db, __VA_ARGS__), want)

static void types(void) {
    CALL("+OK", "FLUSHALL");
    CALL("+OK", "SET s %b", "a\0b", (size_t)3);
    CALL(":3", "STRLEN s");
    CALL(":42", "INCRBY n 42");
    CALL("-ERR value is not an integer or out of range", "INCR s");
    CALL("-WRONGTYPE Operation against a key holding the wrong kind of value", "LPUSH s x");
    CALL("nil", "GET none");
    CALL(":2", "HSET h a 1 b 2");
    CALL("[1 nil]", "HMGET h a z");
    CALL(":3", "RPUSH l a b c");
    CALL("[a b c]", "LRANGE l 0 -1");
    CALL(":2", "SADD set 1 2");
    CALL("[:1 :0]", "SMISMEMBER set 1 5");
    CALL(":2", "ZADD z 1 one 2.5 two");
    CALL("[one 1 two 2.5]", "ZRANGE z 0 -1 WITHSCORES");
    CALL(":0", "SETBIT bits 7 1");
    CALL(":1", "BITCOUNT bits");
    CALL(":1", "PFADD p a b c");
    CALL(":3", "PFCOUNT p");
    CALL(":1", "GEOADD g 13.361389 38.115556 Palermo");
    CALL("[sqc8b49rny0]", "GEOHASH g Palermo");
    CALL("1-1", "XADD st 1-1 f v");
    CALL("+OK", "XGROUP CREATE st group 0");
    CALL("[[st [[1-1 [f v]]]]]", "XREADGROUP GROUP group me STREAMS st >");
    CALL(":1", "XACK st group 1-1");
    CALL("[k v :5]", "EVAL %s 1 k v", "return {KEYS[1], ARGV[1], 5.9}");
    CALL("mylib", "FUNCTION LOAD REPLACE %s",
         "#!lua name=mylib\nredis.register_function('hi', function(keys, args) return 'hi ' .. args[1] end)");
    CALL("hi you", "FCALL hi 0 you");
    CALL("nil", "BLPOP none 0.1");
    CALL("[l a]", "BLPOP none l 1");
}

static void transactions(void) {
    CALL("+OK", "WATCH n");
    CALL("+OK", "MULTI");
    CALL("+QUEUED", "INCR n");
    CALL("+QUEUED", "GET n");
    CALL("[:43 43]", "EXEC");
    CALL("+OK", "WATCH n");
    CALL(":44", "INCR n");
    CALL("+OK", "MULTI");
    CALL("+QUEUED", "INCR n");
    CALL("nil", "EXEC");
    CALL("+OK", "MULTI");
    CALL("-ERR unknown command 'NOSUCH', with args beginning with: ", "NOSUCH");
    CALL("-EXECABORT Transaction discarded because of previous errors.", "EXEC");
}

static void pipelines(void) {
    redisReply *reply;
    char want[32];
    for (int i = 0; i < 10000; i++) redisAppendCommand(db, "INCR piped");
    for (int i = 1; i <= 10000; i++) {
        if (redisGetReply(db, (void **)&reply) != REDIS_OK) fail(__LINE__, "a reply", db->errstr);
        snprintf(want, sizeof want, ":%d", i);
        expect(__LINE__, reply, want);
    }
    size_t size = 8 << 20;
    char *large = malloc(size);
    memset(large, 'x', size);
    CALL("+OK", "SET large %b", large, size);
    reply = redisCommand(db, "GET large");
    if (!reply || reply->len != size || memcmp(reply->str, large, size)) fail(__LINE__, "8 MiB", "others");
    freeReplyObject(reply);
    free(large);
}

/* The asynchronous interface, driven by poll(). */
static struct pollfd watched;
static int messages, done;

static void add_read(void *at) { ((struct pollfd *)at)->events |= POLLIN; }
static void del_read(void *at) { ((struct pollfd *)at)->events &= ~POLLIN; }
static void add_write(void *at) { ((struct pollfd *)at)->events |= POLLOUT; }
static void del_write(void *at) { ((struct pollfd *)at)->events &= ~POLLOUT; }
static void cleanup(void *at) { ((struct pollfd *)at)->events = 0; }

static void on_message(redisAsyncContext *async, void *reply, void *data) {
    char got[256];
    (void)data;
    if (!reply) return;
    show(reply, got, sizeof got);
    if (!strcmp(got, "[subscribe news :1]")) {
        CALL(":1", "PUBLISH news hello");
        CALL(":1", "PUBLISH news again");
    } else if (!strcmp(got, "[message news hello]") && messages == 0) {
        messages++;
    } else if (!strcmp(got, "[message news again]") && messages == 1) {
        messages++;
        redisAsyncDisconnect(async);
    } else {
        fail(__LINE__, "a message", got);
    }
}

static void on_disconnect(const redisAsyncContext *async, int status) {
    (void)async;
    if (status != REDIS_OK) fail(__LINE__, "a clean end", async->errstr);
    done = 1;
}

static void subscriptions(int port) {
    redisAsyncContext *async = redisAsyncConnect("127.0.0.1", port);
    if (!async || async->err) fail(__LINE__, "a connection", async ? async->errstr : NULL);
    watched.fd = async->c.fd;
    async->ev.data = &watched;
    async->ev.addRead = add_read;
    async->ev.delRead = del_read;
    async->ev.addWrite = add_write;
    async->ev.delWrite = del_write;
    async->ev.cleanup = cleanup;
    add_write(&watched);
    redisAsyncSetDisconnectCallback(async, on_disconnect);
    redisAsyncCommand(async, on_message, NULL, "SUBSCRIBE news");
    while (!done) {
        if (poll(&watched, 1, 10000) <= 0) fail(__LINE__, "an event", NULL);
        if (watched.revents & POLLIN) redisAsyncHandleRead(async);
        if (!done && watched.revents & POLLOUT) redisAsyncHandleWrite(async);
    }
    if (messages != 2) fail(__LINE__, "two messages", NULL);
}

int main(void) {
    int port = atoi(getenv("SERVER_PORT"));
    db = redisConnect("127.0.0.1", port);
    if (!db || db->err) fail(__LINE__, "a connection", db ? db->errstr : NULL);
    types();
    transactions();
    pipelines();
    subscriptions(port);
    redisFree(db);
    return 0;
}
