/* Shaped like a benchmark for OSU's non-blocking calls: a window of requests that are used again and again. The arguments are the
   servers, iset or bset, and wait or test. */

#include <libmemcached-1.0/memcached.h>

enum { KEYS = 500, WINDOW = 32, LEN = 4096 };

static memcached_st *memc;
static memcached_request_st *window[WINDOW];
static int by_test;

static void need(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static memcached_return_t finish(memcached_request_st *req)
{
    if (by_test)
        while (memcached_test(memc, req) == MEMCACHED_IN_PROGRESS)
            ;
    else
        memcached_wait(memc, req);
    return req->response;
}

int main(int argc, char **argv)
{
    static char values[WINDOW][LEN], into[LEN];
    char key[17];
    memcached_return rc;
    memcached_server_st *servers;
    size_t len;
    uint32_t flags;
    int done = 0;

    need(argc == 4, "three arguments");
    by_test = strcmp(argv[3], "test") == 0;
    memc = memcached_create(NULL);
    servers = memcached_servers_parse(argv[1]);
    need(memcached_server_push(memc, servers) == MEMCACHED_SUCCESS, "servers");
    memcached_server_list_free(servers);
    memcached_behavior_set(memc, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    for (int i = 0; i < WINDOW; i++)
        window[i] = memcached_request_create(memc, values[i], LEN, 0);

    for (int i = 0; i < KEYS; i++) {
        memcached_request_st *req = window[i % WINDOW];
        if (i >= WINDOW)
            need(finish(req) == MEMCACHED_SUCCESS, "a set");
        memset(values[i % WINDOW], 'a' + i % 26, LEN);
        snprintf(key, sizeof key, "key-%012d", i);
        if (strcmp(argv[2], "iset") == 0) {
            rc = memcached_iset(memc, key, 16, req, 0, 0);
        } else {
            rc = memcached_bset(memc, key, 16, req, 1000, 0);
            memset(values[i % WINDOW], '?', LEN);
        }
        need(rc == MEMCACHED_SUCCESS, "a request");
        need(memcached_iset(memc, key, 16, req, 0, 0) == MEMCACHED_INVALID_ARGUMENTS, "a request has one operation at a time");
    }
    for (int i = 0; i < WINDOW; i++) {
        need(finish(window[i]) == MEMCACHED_SUCCESS, "a set");
        memcached_request_free(memc, window[i]);
        window[i] = memcached_request_create(memc, NULL, 0, 0);
    }

    for (int i = 0; i < KEYS + WINDOW; i++) {
        memcached_request_st *req = window[i % WINDOW];
        if (i >= WINDOW) {
            need(finish(req) == MEMCACHED_SUCCESS && req->value_length == LEN, "a get");
            need(((char *)req->value)[LEN - 1] == 'a' + (i - WINDOW) % 26, "the value");
            free(req->value);
            done++;
        }
        if (i >= KEYS)
            continue;
        snprintf(key, sizeof key, "key-%012d", i);
        need(memcached_iget(memc, key, 16, req) == MEMCACHED_SUCCESS, "a request");
    }
    need(done == KEYS, "all are there");
    need(memcached_bget(memc, "none", 4, window[0]) == MEMCACHED_SUCCESS, "a request");
    need(finish(window[0]) == MEMCACHED_NOTFOUND, "a missing key");
    for (int i = 0; i < WINDOW; i++)
        memcached_request_free(memc, window[i]);

    /* Into the caller's buffer; and the calls that wait. */
    window[0] = memcached_request_create(memc, into, LEN, 0);
    need(memcached_iget(memc, "key-000000000001", 16, window[0]) == MEMCACHED_SUCCESS, "a request");
    need(memcached_wait(memc, window[0]) == MEMCACHED_SUCCESS && into[5] == 'b' && window[0]->value == into, "in place");
    memcached_request_free(memc, window[0]);
    need(memcached_set(memc, "k", 1, "v", 1, 0, 7) == MEMCACHED_NOT_SUPPORTED, "flags");
    need(memcached_set(memc, "k", 1, "v", 1, 0, 0) == MEMCACHED_SUCCESS, "set");
    char *value = memcached_get(memc, "k", 1, &len, &flags, &rc);
    need(rc == MEMCACHED_SUCCESS && len == 1 && strcmp(value, "v") == 0, "get");
    free(value);
    memcached_free(memc);

    /* An object of the caller's own, twice. */
    memcached_st own;
    need(memcached_create(&own) == &own, "an object");
    for (int i = 0; i < 2; i++) {
        servers = memcached_servers_parse(argv[1]);
        need(memcached_server_push(&own, servers) == MEMCACHED_SUCCESS, "servers");
        memcached_server_list_free(servers);
        need(memcached_set(&own, "k", 1, "v", 1, 0, 0) == MEMCACHED_SUCCESS, "set");
        memcached_free(&own);
    }
    puts("ok");
    return 0;
}
