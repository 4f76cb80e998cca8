/* The calls of the C interface, right and wrong, against a server whose address is the argument. */

#include <holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(holds)                                                          \
    do {                                                                      \
        if (!(holds)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static hf_client client;

static hf_request command(uint32_t flags, int key_at, size_t argc, const char *const *argv)
{
    size_t lens[8];
    hf_request request = 0;
    for (size_t i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    CHECK(hf_command(client, argc, (const void *const *)argv, lens, key_at, flags, NULL, 0, &request) == HF_OK);
    CHECK(request != 0);
    return request;
}
#define COMMAND(flags, ...)                                                                             \
    command(flags, 1, sizeof((const char *const[]) { __VA_ARGS__ }) / sizeof(char *), (const char *const[]) { __VA_ARGS__ })

static hf_reply result(hf_request request)
{
    hf_reply reply;
    CHECK(hf_wait(client, request, 30000) == HF_OK);
    CHECK(hf_result(client, request, &reply) == HF_OK);
    return reply;
}

static void remove_key(const char *key)
{
    hf_request request = COMMAND(0, "DEL", key);
    result(request);
    CHECK(hf_release(client, request) == HF_OK);
}

static int is(const hf_reply *reply, const char *text)
{
    return reply->len == strlen(text) && memcmp(reply->data, text, reply->len) == 0;
}

static void buffers(void)
{
    enum { LEN = 300000 };
    char *value = malloc(LEN), *copy = malloc(LEN);
    hf_request set, get, small, missing;
    hf_reply reply;
    hf_state state;
    for (int i = 0; i < LEN; i++)
        value[i] = (char)(i * 7);

    CHECK(hf_iset(client, "big", 3, value, LEN, &set) == HF_OK);
    CHECK(hf_wait_buffer(client, set, 30000) == HF_OK);
    free(value);
    CHECK(hf_bset(client, "small", 5, "x", 1, &small) == HF_OK);
    reply = result(small);
    CHECK(reply.type == HF_STATUS && is(&reply, "OK") && reply.executed == HF_EXECUTED);
    reply = result(set);
    CHECK(is(&reply, "OK"));

    CHECK(hf_iget(client, "big", 3, copy, LEN, &get) == HF_OK);
    reply = result(get);
    CHECK(reply.type == HF_FILLED && reply.len == LEN);
    for (int i = 0; i < LEN; i++)
        CHECK(copy[i] == (char)(i * 7));
    CHECK(hf_test(client, get, &state) == HF_OK && state == HF_DONE);
    CHECK(hf_release(client, get) == HF_OK);

    CHECK(hf_iget(client, "big", 3, copy, LEN - 1, &get) == HF_OK);
    CHECK(hf_wait(client, get, -1) == HF_OK);
    CHECK(hf_result(client, get, &reply) == HF_E_TOO_SMALL && reply.integer == LEN);
    CHECK(hf_release(client, get) == HF_OK);

    CHECK(hf_bget(client, "big", 3, &get) == HF_OK);
    CHECK(hf_bget(client, "none", 4, &missing) == HF_OK);
    reply = result(get);
    CHECK(reply.type == HF_STRING && reply.len == LEN && reply.data[1] == 7);
    CHECK(result(missing).type == HF_NIL);

    /* The buffer of a request that is cancelled is free at once. */
    CHECK(hf_release(client, get) == HF_OK);
    CHECK(hf_iget(client, "big", 3, copy, LEN, &get) == HF_OK);
    CHECK(hf_cancel(client, get) == HF_OK);
    free(copy);
    CHECK(hf_result(client, get, &reply) == HF_E_CANCELLED);
    CHECK(hf_release(client, get) == HF_OK && hf_release(client, set) == HF_OK);
    CHECK(hf_release(client, small) == HF_OK && hf_release(client, missing) == HF_OK);
}

static void replies(void)
{
    hf_request request;
    hf_reply reply;
    char message[100];

    remove_key("h");
    request = COMMAND(0, "HSET", "h", "f", "1", "g", "2");
    CHECK(result(request).integer == 2 && result(request).type == HF_INTEGER);
    hf_release(client, request);
    request = COMMAND(HF_READ_ONLY, "HGETALL", "h");
    reply = result(request);
    CHECK(reply.type == HF_MAP && reply.count == 4 && is(&reply.items[0], "f") && is(&reply.items[3], "2"));
    hf_release(client, request);

    /* Aggregates in aggregates, and what is asked for twice is the same. */
    const char *script = "return {1, {'a', {}, {'b'}}, 'c'}";
    request = command(0, -1, 3, (const char *const[]) { "EVAL", script, "0" });
    reply = result(request);
    CHECK(reply.type == HF_ARRAY && reply.count == 3 && reply.items[0].integer == 1);
    const hf_reply *inner = &reply.items[1];
    CHECK(inner->count == 3 && is(&inner->items[0], "a") && inner->items[1].type == HF_ARRAY);
    CHECK(inner->items[1].count == 0 && is(&inner->items[2].items[0], "b") && is(&reply.items[2], "c"));
    CHECK(result(request).items == reply.items);
    hf_release(client, request);

    request = COMMAND(0, "LPUSH", "h", "x");
    CHECK(hf_wait(client, request, -1) == HF_OK);
    CHECK(hf_result(client, request, &reply) == HF_E_SERVER && reply.type == HF_ERROR);
    CHECK(memcmp(reply.data, "WRONGTYPE", 9) == 0 && reply.executed == HF_EXECUTED);
    CHECK(hf_message(client, request, message, sizeof message) == HF_OK && strncmp(message, "WRONGTYPE", 9) == 0);
    CHECK(hf_message(client, request, message, 5) == HF_OK && strcmp(message, "WRON") == 0);
    hf_release(client, request);
}

/* Waits until the server says that so many clients are blocked. */
static void await_blocked(const char *line)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (int tries = 0, found = 0; !found; tries++) {
        hf_request info = command(HF_READ_ONLY, -1, 2, (const char *const[]) { "INFO", "clients" });
        hf_reply reply = result(info);
        found = memmem(reply.data, reply.len, line, strlen(line)) != NULL;
        CHECK(hf_release(client, info) == HF_OK);
        CHECK(tries < 30000);
        nanosleep(&pause, NULL);
    }
}

static void waiting(void)
{
    hf_request none[3] = { 0, 0, 0 }, blocked;
    hf_reply reply;
    size_t index;

    await_blocked("\nblocked_clients:0\r");
    blocked = COMMAND(HF_UNTIMED, "BLPOP", "list", "0");
    CHECK(hf_wait(client, blocked, 10) == HF_IN_PROGRESS);
    CHECK(hf_test(client, blocked, NULL) == HF_IN_PROGRESS);
    CHECK(hf_wait_any(client, &blocked, 1, 0, &index) == HF_IN_PROGRESS);
    CHECK(hf_result(client, blocked, &reply) == HF_IN_PROGRESS);
    /* It waits on a connection of its own, which is made first. */
    await_blocked("\nblocked_clients:1\r");
    CHECK(hf_cancel(client, blocked) == HF_OK);
    CHECK(hf_result(client, blocked, &reply) == HF_E_CANCELLED && reply.executed == HF_MAYBE_EXECUTED);
    CHECK(hf_release(client, blocked) == HF_OK);
    await_blocked("\nblocked_clients:0\r");
    CHECK(hf_wait_all(client, none, 3, 0) == HF_E_NO_REQUEST);
}

static void many(void)
{
    enum { COUNT = 1000 };
    static hf_request requests[COUNT];
    static size_t indices[COUNT];
    size_t found, index, listed = 0;
    hf_request done;
    struct pollfd fd = { .fd = hf_event_fd(client), .events = POLLIN };
    for (int i = 0; i < COUNT; i++)
        requests[i] = COMMAND(HF_LISTED, "INCR", "n");
    CHECK(hf_flush(client) == HF_OK);
    CHECK(hf_wait_any(client, requests, COUNT, -1, &index) == HF_OK && index == 0);
    CHECK(hf_wait_some(client, requests, COUNT, -1, indices, &found) == HF_OK && found > 0 && indices[0] == 0);
    while (listed < COUNT) {
        CHECK(poll(&fd, 1, 30000) == 1);
        CHECK(hf_progress(client, 0) == HF_OK);
        while (hf_next_completion(client, &done) == HF_OK)
            listed++;
    }
    CHECK(hf_wait_all(client, requests, COUNT, 0) == HF_OK);
    for (int i = 0; i < COUNT; i++) {
        CHECK(result(requests[i]).integer == i + 1);
        CHECK(hf_release(client, requests[i]) == HF_OK);
    }
}

static void misuse(const char *address)
{
    hf_request request = COMMAND(0, "PING"), other = 0;
    hf_reply reply;
    hf_client second = 0;
    char error[40];
    const void *args[2] = { "GET", NULL };
    size_t lens[2] = { 3, 1 };
    hf_options options = { .size = sizeof options, .servers = address };

    CHECK(hf_release(client, request) == HF_OK);
    CHECK(hf_release(client, request) == HF_E_NO_REQUEST);
    CHECK(hf_test(client, request, NULL) == HF_E_NO_REQUEST);
    CHECK(hf_wait(client, request, -1) == HF_E_NO_REQUEST);
    CHECK(hf_result(client, request, &reply) == HF_E_NO_REQUEST);
    CHECK(hf_cancel(client, 0) == HF_E_NO_REQUEST && hf_cancel(client, ~0ull) == HF_E_NO_REQUEST);
    CHECK(hf_iset(client, NULL, 3, "v", 1, &other) == HF_E_INVALID);
    CHECK(hf_iset(client, "k", 1, NULL, 1, &other) == HF_E_INVALID);
    CHECK(hf_iset(client, "k", (size_t)-1, "v", 1, &other) == HF_E_INVALID);
    CHECK(hf_iset(client, "k", 1, "v", 1, NULL) == HF_E_INVALID);
    CHECK(hf_iget(client, "k", 1, NULL, 5, &other) == HF_E_INVALID);
    CHECK(hf_command(client, 2, args, lens, 1, 0, NULL, 0, &other) == HF_E_INVALID);
    CHECK(hf_command(client, 0, args, lens, 1, 0, NULL, 0, &other) == HF_E_INVALID);
    CHECK(hf_command(client, 1, args, lens, 1, 16, NULL, 0, &other) == HF_E_INVALID);
    args[0] = "SUBSCRIBE";
    lens[0] = 9;
    CHECK(hf_command(client, 1, args, lens, -1, 0, NULL, 0, &other) == HF_E_INVALID);
    CHECK(hf_wait_all(client, NULL, 1, 0) == HF_E_INVALID);
    CHECK(other == 0);

    CHECK(hf_open(NULL, &second, NULL, 0) == HF_E_INVALID && hf_open(&options, NULL, NULL, 0) == HF_E_INVALID);
    options.size--;
    CHECK(hf_open(&options, &second, error, sizeof error) == HF_E_INVALID && strncmp(error, "size is", 7) == 0);
    options.size++;
    options.servers = NULL;
    CHECK(hf_open(&options, &second, error, sizeof error) == HF_E_INVALID && strcmp(error, "servers is null") == 0);
    options.servers = "nothing";
    CHECK(hf_open(&options, &second, error, 8) == HF_E_INVALID && strcmp(error, "an addr") == 0);
    options.servers = address;
    options.protocol = 4;
    CHECK(hf_open(&options, &second, error, sizeof error) == HF_E_INVALID && strcmp(error, "the protocol is 2 or 3") == 0);
    options.protocol = 0;
    options.tls_server_name = "localhost";
    CHECK(hf_open(&options, &second, error, sizeof error) == HF_E_INVALID && strcmp(error, "TLS needs tls_ca_file") == 0);
    options.tls_server_name = NULL;
    options.tls_ca_file = "/nowhere";
    CHECK(hf_open(&options, &second, NULL, 0) == HF_E_SETUP && second == 0);
    options.tls_ca_file = NULL;
    options.requests_max = 1;
    CHECK(hf_open(&options, &second, NULL, 0) == HF_OK && second != client);
    CHECK(hf_bget(second, "k", 1, &request) == HF_OK && hf_bget(second, "k", 1, &other) == HF_E_FULL);
    CHECK(hf_close(second) == HF_OK && hf_close(second) == HF_E_NO_CLIENT);
    CHECK(hf_test(second, request, NULL) == HF_E_NO_CLIENT && hf_event_fd(second) == -1);
    CHECK(hf_flush(0) == HF_E_NO_CLIENT);
}

static void *wait_for_ever(void *request)
{
    CHECK(hf_wait(client, *(hf_request *)request, -1) == HF_E_NO_CLIENT);
    return NULL;
}

/* Ends the client while threads wait: the first one makes progress, and the other one waits for that. */
static void closing(void)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    hf_request blocked = COMMAND(HF_UNTIMED, "BLPOP", "list", "0");
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_ever, &blocked) == 0);
    nanosleep(&pause, NULL);
    CHECK(hf_close(client) == HF_OK);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    for (uint32_t thread = 0; thread < 2; thread++) {
        hf_options options = { .size = sizeof options, .servers = argv[1], .thread = thread };
        CHECK(hf_open(&options, &client, NULL, 0) == HF_OK);
        remove_key("n");
        buffers();
        replies();
        many();
        misuse(argv[1]);
        waiting();
        closing();
    }
    puts("ok");
    return 0;
}
