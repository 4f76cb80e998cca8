/* The non-blocking calls that OSU added to libmemcached (memcached_iset, memcached_bget, memcached_test ...), and those
   of libmemcached's that programs written for them use besides, over Holdfast's client library: such programs are
   compiled with this folder's parent in the include path, and linked with -lholdfast.

   What is different: ports are 6379 if not named, and a server may be the path of a Unix socket; client flags are not
   stored, so others than 0 are MEMCACHED_NOT_SUPPORTED; behaviours are accepted and change nothing. A value that the
   library has allocated is the caller's, to be freed by free(), and is followed by a zero byte. */

#ifndef HOLDFAST_OSU_MEMCACHED_H
#define HOLDFAST_OSU_MEMCACHED_H

#include <holdfast.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum memcached_return_t {
    MEMCACHED_SUCCESS,
    MEMCACHED_FAILURE,
    MEMCACHED_CONNECTION_FAILURE,
    MEMCACHED_NOTFOUND,
    MEMCACHED_IN_PROGRESS,
    MEMCACHED_MEMORY_ALLOCATION_FAILURE,
    MEMCACHED_INVALID_ARGUMENTS,
    MEMCACHED_NOT_SUPPORTED,
    MEMCACHED_NO_SERVERS,
    MEMCACHED_SERVER_ERROR,
    MEMCACHED_TIMEOUT,
    MEMCACHED_E2BIG
} memcached_return_t;
typedef memcached_return_t memcached_return;

typedef enum memcached_behavior_t {
    MEMCACHED_BEHAVIOR_NO_BLOCK,
    MEMCACHED_BEHAVIOR_TCP_NODELAY,
    MEMCACHED_BEHAVIOR_BINARY_PROTOCOL,
    MEMCACHED_BEHAVIOR_BUFFER_REQUESTS,
    MEMCACHED_BEHAVIOR_DISTRIBUTION
} memcached_behavior_t;

/* A list of addresses, separated by spaces. */
typedef struct memcached_server_st {
    char *addresses;
} memcached_server_st, *memcached_server_list_st;

typedef struct memcached_st {
    hf_client client;
    char *addresses;
    /* Whether memcached_create has allocated it. */
    bool is_allocated;
} memcached_st;

typedef struct memcached_request_st {
    /* Of the last operation: MEMCACHED_IN_PROGRESS until it is done. */
    memcached_return_t response;
    /* What is set; or where what was got is. */
    void *value;
    size_t value_length;
    /* The library's own: the buffer that the caller has brought, and the operation. */
    void *buffer;
    size_t capacity;
    hf_request request;
} memcached_request_st;

static inline const char *memcached_strerror(const memcached_st *memc, memcached_return_t rc)
{
    static const char *const texts[] = {
        "SUCCESS", "FAILURE", "CONNECTION FAILURE", "NOT FOUND", "IN PROGRESS", "MEMORY ALLOCATION FAILURE",
        "INVALID ARGUMENTS", "NOT SUPPORTED", "NO SERVERS", "SERVER ERROR", "TIMEOUT", "TOO LARGE FOR THE BUFFER"
    };
    (void)memc;
    return (size_t)rc < sizeof texts / sizeof *texts ? texts[rc] : "UNKNOWN";
}

/* Appends addresses to a list; false if there is no memory. */
static inline bool hf_osu_append(char **list, const char *more)
{
    size_t old = *list ? strlen(*list) : 0;
    char *joined = (char *)realloc(*list, old + strlen(more) + 2);
    if (!joined)
        return false;
    if (old > 0)
        joined[old++] = ' ';
    strcpy(joined + old, more);
    *list = joined;
    return true;
}

static inline memcached_st *memcached_create(memcached_st *memc)
{
    bool is_allocated = !memc;
    if (is_allocated)
        memc = (memcached_st *)malloc(sizeof *memc);
    if (memc) {
        memset(memc, 0, sizeof *memc);
        memc->is_allocated = is_allocated;
    }
    return memc;
}

/* An object that the caller has brought to memcached_create is as new afterwards. */
static inline void memcached_free(memcached_st *memc)
{
    if (!memc)
        return;
    hf_close(memc->client);
    free(memc->addresses);
    if (memc->is_allocated)
        free(memc);
    else
        memset(memc, 0, sizeof *memc);
}

static inline void memcached_server_list_free(memcached_server_list_st list)
{
    if (list)
        free(list->addresses);
    free(list);
}

/* Reads "host:port,host,/path". */
static inline memcached_server_list_st memcached_servers_parse(const char *text)
{
    memcached_server_list_st list;
    if (!text || !*text)
        return NULL;
    list = (memcached_server_list_st)calloc(1, sizeof *list);
    while (list && *text) {
        size_t len = strcspn(text, ", ");
        char *one = (char *)malloc(len + sizeof ":6379");
        if (!one) {
            memcached_server_list_free(list);
            return NULL;
        }
        memcpy(one, text, len);
        one[len] = '\0';
        if (len > 0 && !strchr(one, '/') && !strchr(one, ':'))
            strcat(one, ":6379");
        if (len > 0 && !hf_osu_append(&list->addresses, one)) {
            free(one);
            memcached_server_list_free(list);
            return NULL;
        }
        free(one);
        text += len;
        text += strspn(text, ", ");
    }
    return list;
}

static inline memcached_return_t memcached_server_push(memcached_st *memc, const memcached_server_st *list)
{
    if (!memc || memc->client || !list || !list->addresses)
        return MEMCACHED_INVALID_ARGUMENTS;
    return hf_osu_append(&memc->addresses, list->addresses) ? MEMCACHED_SUCCESS
                                                             : MEMCACHED_MEMORY_ALLOCATION_FAILURE;
}

static inline memcached_return_t memcached_server_add(memcached_st *memc, const char *host, unsigned port)
{
    char address[300];
    int len = port ? snprintf(address, sizeof address, "%s:%u", host, port)
                   : snprintf(address, sizeof address, "%s:6379", host);
    memcached_server_st one;
    if (len < 0 || (size_t)len >= sizeof address)
        return MEMCACHED_INVALID_ARGUMENTS;
    one.addresses = address;
    return memcached_server_push(memc, &one);
}

static inline memcached_return_t memcached_behavior_set(memcached_st *memc, memcached_behavior_t flag, uint64_t data)
{
    (void)flag;
    (void)data;
    return memc ? MEMCACHED_SUCCESS : MEMCACHED_INVALID_ARGUMENTS;
}

static inline memcached_return_t hf_osu_status(hf_status status)
{
    switch (status) {
    case HF_OK: return MEMCACHED_SUCCESS;
    case HF_IN_PROGRESS: return MEMCACHED_IN_PROGRESS;
    case HF_E_SERVER: return MEMCACHED_SERVER_ERROR;
    case HF_E_TOO_SMALL: case HF_E_TOO_LARGE: return MEMCACHED_E2BIG;
    case HF_E_LOST: case HF_E_REFUSED: case HF_E_SETUP: return MEMCACHED_CONNECTION_FAILURE;
    case HF_E_TIMED_OUT: return MEMCACHED_TIMEOUT;
    case HF_E_FULL: return MEMCACHED_MEMORY_ALLOCATION_FAILURE;
    case HF_E_INVALID: case HF_E_NO_REQUEST: case HF_E_NO_CLIENT: return MEMCACHED_INVALID_ARGUMENTS;
    default: return MEMCACHED_FAILURE;
    }
}

/* A request for operations one after another. To set: with the value. To get: with a buffer for values of up to so many
   bytes; with a length of 0 the library allocates the value each time. */
static inline memcached_request_st *memcached_request_create(memcached_st *memc, void *value, size_t len, uint32_t flags)
{
    memcached_request_st *req = (memcached_request_st *)calloc(1, sizeof *req);
    (void)memc;
    if (req && flags == 0) {
        req->value = value;
        req->value_length = len;
        req->buffer = value;
        req->capacity = len;
        req->response = MEMCACHED_SUCCESS;
        return req;
    }
    free(req);
    return NULL;
}

/* An operation that is not done is cancelled. The value is the caller's. */
static inline void memcached_request_free(memcached_st *memc, memcached_request_st *req)
{
    if (req && req->request && memc)
        hf_release(memc->client, req->request);
    free(req);
}

/* Makes the request ready for an operation, and the client for the first one. */
static inline memcached_return_t hf_osu_begin(memcached_st *memc, memcached_request_st *req)
{
    if (!memc || !req || req->request)
        return MEMCACHED_INVALID_ARGUMENTS;
    if (!memc->client) {
        hf_options options;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.servers = memc->addresses;
        if (!memc->addresses)
            return MEMCACHED_NO_SERVERS;
        return hf_osu_status(hf_open(&options, &memc->client, NULL, 0));
    }
    return MEMCACHED_SUCCESS;
}

static inline memcached_return_t hf_osu_set(memcached_st *memc, const char *key, size_t key_len,
                                            memcached_request_st *req, time_t expiry, uint32_t flags, bool lent)
{
    memcached_return_t rc = hf_osu_begin(memc, req);
    char seconds[32];
    const void *args[5] = { "SET", key, NULL, "EX", seconds };
    size_t lens[5] = { 3, key_len, 0, 2, 0 };
    if (rc != MEMCACHED_SUCCESS)
        return rc;
    if (flags != 0)
        return MEMCACHED_NOT_SUPPORTED;
    if (expiry < 0)
        return MEMCACHED_INVALID_ARGUMENTS;
    /* As for memcached, what is more than 30 days is a time of day. */
    if (expiry > 60 * 60 * 24 * 30) {
        args[3] = "EXAT";
        lens[3] = 4;
    }
    lens[4] = (size_t)snprintf(seconds, sizeof seconds, "%lld", (long long)expiry);
    args[2] = req->buffer;
    lens[2] = req->capacity;
    rc = hf_osu_status(hf_command(memc->client, expiry ? 5 : 3, args, lens, 1, lent ? HF_LENT : 0, NULL, 0, &req->request));
    req->response = rc == MEMCACHED_SUCCESS ? MEMCACHED_IN_PROGRESS : rc;
    return rc;
}

/* The request's value must not be changed until the operation is done. */
static inline memcached_return_t memcached_iset(memcached_st *memc, const char *key, size_t key_len,
                                                memcached_request_st *req, time_t expiry, uint32_t flags)
{
    return hf_osu_set(memc, key, key_len, req, expiry, flags, true);
}

/* The request's value may be changed when this returns. */
static inline memcached_return_t memcached_bset(memcached_st *memc, const char *key, size_t key_len,
                                                memcached_request_st *req, time_t expiry, uint32_t flags)
{
    return hf_osu_set(memc, key, key_len, req, expiry, flags, false);
}

/* The key is copied by both, so that it is the caller's at once. */
static inline memcached_return_t memcached_iget(memcached_st *memc, const char *key, size_t key_len,
                                                memcached_request_st *req)
{
    memcached_return_t rc = hf_osu_begin(memc, req);
    if (rc != MEMCACHED_SUCCESS)
        return rc;
    rc = hf_osu_status(
        hf_iget(memc->client, key, key_len, req->capacity ? req->buffer : NULL, req->capacity, &req->request));
    req->response = rc == MEMCACHED_SUCCESS ? MEMCACHED_IN_PROGRESS : rc;
    return rc;
}

static inline memcached_return_t memcached_bget(memcached_st *memc, const char *key, size_t key_len,
                                                memcached_request_st *req)
{
    return memcached_iget(memc, key, key_len, req);
}

/* Takes the result of an operation that is done. */
static inline memcached_return_t hf_osu_finish(memcached_st *memc, memcached_request_st *req)
{
    hf_reply reply;
    req->response = hf_osu_status(hf_result(memc->client, req->request, &reply));
    if (req->response == MEMCACHED_SUCCESS && reply.type == HF_NIL)
        req->response = MEMCACHED_NOTFOUND;
    if (req->response == MEMCACHED_SUCCESS && reply.type == HF_FILLED) {
        req->value = req->buffer;
        req->value_length = reply.len;
    }
    if (req->response == MEMCACHED_SUCCESS && reply.type == HF_STRING) {
        char *value = (char *)malloc(reply.len + 1);
        if (value) {
            memcpy(value, reply.data, reply.len);
            value[reply.len] = '\0';
            req->value = value;
            req->value_length = reply.len;
        } else {
            req->response = MEMCACHED_MEMORY_ALLOCATION_FAILURE;
        }
    }
    hf_release(memc->client, req->request);
    req->request = 0;
    return req->response;
}

/* MEMCACHED_IN_PROGRESS, or the result of the operation, as in the request's response. */
static inline memcached_return_t memcached_test(memcached_st *memc, memcached_request_st *req)
{
    hf_status status;
    if (!memc || !req)
        return MEMCACHED_INVALID_ARGUMENTS;
    if (!req->request)
        return req->response;
    status = hf_test(memc->client, req->request, NULL);
    return status == HF_OK ? hf_osu_finish(memc, req) : hf_osu_status(status);
}

/* Waits for the result of the operation. */
static inline memcached_return_t memcached_wait(memcached_st *memc, memcached_request_st *req)
{
    hf_status status;
    if (!memc || !req)
        return MEMCACHED_INVALID_ARGUMENTS;
    if (!req->request)
        return req->response;
    status = hf_wait(memc->client, req->request, -1);
    return status == HF_OK ? hf_osu_finish(memc, req) : hf_osu_status(status);
}

static inline memcached_return_t memcached_set(memcached_st *memc, const char *key, size_t key_len,
                                               const char *value, size_t len, time_t expiry, uint32_t flags)
{
    memcached_request_st req;
    memcached_return_t rc;
    memset(&req, 0, sizeof req);
    req.buffer = (void *)value;
    req.capacity = len;
    rc = memcached_bset(memc, key, key_len, &req, expiry, flags);
    return rc == MEMCACHED_SUCCESS ? memcached_wait(memc, &req) : rc;
}

static inline char *memcached_get(memcached_st *memc, const char *key, size_t key_len, size_t *len, uint32_t *flags,
                                  memcached_return_t *rc)
{
    memcached_request_st req;
    memset(&req, 0, sizeof req);
    *rc = memcached_bget(memc, key, key_len, &req);
    if (*rc == MEMCACHED_SUCCESS)
        *rc = memcached_wait(memc, &req);
    *len = req.value_length;
    if (flags)
        *flags = 0;
    return (char *)req.value;
}

#ifdef __cplusplus
}
#endif

#endif
