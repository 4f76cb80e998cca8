/* Sets or gets in the manner of OSU's benchmark for non-blocking calls: ohb SERVERS load|set|get random|zipf KEYS REQUESTS WINDOW.
   Keys of 16 bytes, values of 4 KiB. A window of 1 is the blocking call. Prints seconds by requests as OSU's benchmark does, then the median
   and the 99th percentile of the time from the call to the result, all in microseconds. bench/ohb.py compiles and runs it. */

#include <holdfast.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096, WINDOW_MAX = 256, KEY_BYTES = 16 };

static hf_client client;
static long keys;
static double *cumulated;

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static double draw(void)
{
    static unsigned long long state;
    if (state == 0)
        /* Another sequence in each run, lest the values of the last one are in memory. */
        state = (unsigned long long)now() | 1;
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* A key by Zipf's law with 1.01; frequent ones lie anywhere among the others. */
static long draw_zipf(void)
{
    double at = draw() * cumulated[keys - 1];
    long low = 0, high = keys - 1;
    while (low < high) {
        long middle = (low + high) / 2;
        if (cumulated[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low * 2654435761L % keys;
}

static int less(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static char buffers[WINDOW_MAX][BYTES];
    static hf_request window[WINDOW_MAX];
    static double begun[WINDOW_MAX];
    hf_options options = { .size = sizeof options };
    char error[200] = "";
    double *times, started, total;
    long requests, width;
    int gets, loads, zipf;

    need(argc == 7, "six arguments");
    loads = strcmp(argv[2], "load") == 0;
    gets = strcmp(argv[2], "get") == 0;
    zipf = strcmp(argv[3], "zipf") == 0;
    keys = atol(argv[4]);
    requests = loads ? keys : atol(argv[5]);
    width = atol(argv[6]);
    need(width >= 1 && width <= WINDOW_MAX && keys > 0 && requests > 0, "a window of 1 to 256, keys and requests");
    options.servers = argv[1];
    need(hf_open(&options, &client, error, sizeof error) == HF_OK, error);
    times = malloc(requests * sizeof *times);
    cumulated = malloc(keys * sizeof *cumulated);
    for (long i = 0; i < keys; i++)
        cumulated[i] = (i ? cumulated[i - 1] : 0) + pow((double)(i + 1), -1.01);
    for (long i = 0; i < WINDOW_MAX; i++)
        for (int at = 0; at < BYTES; at++)
            buffers[i][at] = (char)(draw() * 256);

    started = now();
    for (long done = 0, i = 0; i < requests; i++) {
        long at = i % width;
        char key[KEY_BYTES + 1];
        snprintf(key, sizeof key, "key:%012ld", loads ? i : zipf ? draw_zipf() : (long)(draw() * keys));
        begun[at] = now();
        need((gets ? hf_iget(client, key, KEY_BYTES, buffers[at], BYTES, &window[at])
                   : hf_iset(client, key, KEY_BYTES, buffers[at], BYTES, &window[at])) == HF_OK, "taken in");
        /* As there: a window is handed over, then all of it is waited for. */
        if (at == width - 1 || i == requests - 1)
            for (; done <= i; done++) {
                hf_request request = window[done % width];
                hf_reply reply;
                need(hf_wait(client, request, -1) == HF_OK, "done");
                need(hf_result(client, request, &reply) == HF_OK, "a reply");
                need(!gets || (reply.type == HF_FILLED && reply.len == BYTES), "the value");
                hf_release(client, request);
                times[done] = now() - begun[done % width];
            }
    }
    total = now() - started;
    qsort(times, requests, sizeof *times, less);
    printf("%.3f %.3f %.3f\n", total / requests, times[requests / 2], times[requests * 99 / 100]);
    hf_close(client);
    return 0;
}
