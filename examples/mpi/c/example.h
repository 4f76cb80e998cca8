/* What the three programs share: the client, a window of requests on their way, random numbers, and what is printed. */

#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <holdfast.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, ARGS = 32 };

static int rank, ranks;
static hf_client client;
/* Requests whose outcome a lost connection has left unknown. */
static long unknown;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static inline void need(hf_status status, const char *what)
{
    char text[100];
    if (status >= 0)
        return;
    snprintf(text, sizeof text, "%s: error %d", what, (int)status);
    fail(text);
}

/* Every program is called with the servers' addresses and how much each process is to do. */
static inline long begin(int argc, char **argv)
{
    hf_options options = { .size = sizeof options };
    char error[200] = "";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3)
        fail("the arguments are SERVERS and the requests of a process");
    options.servers = argv[1];
    if (hf_open(&options, &client, error, sizeof error) != HF_OK)
        fail(error);
    return atol(argv[2]);
}

/* Draws a number below another one (Park and Miller's generator). */
static inline int draw(long long *state, int below)
{
    *state = *state * 48271 % 2147483647;
    return (int)(*state % below);
}

/* Requests on their way. They are replied to in order, so the oldest is the one to wait for. */
struct window {
    hf_request requests[WINDOW];
    long tags[WINDOW];
    long begun, ended;
    /* Told of each request that has ended, by the tag that the caller has given it; its place is that before `ended`. It may begin
       another one. */
    void (*ended_with)(struct window *window, long tag, hf_status status, const hf_reply *reply);
};

static inline void end_oldest(struct window *window)
{
    int at = window->ended++ % WINDOW;
    hf_request request = window->requests[at];
    hf_reply reply;
    hf_status status;

    need(hf_wait(client, request, -1), "wait");
    status = hf_result(client, request, &reply);
    /* Whoever has lost a connection goes on; the library makes another one. All else ends the program. */
    if (status != HF_OK && status != HF_E_LOST) {
        char text[200] = "";
        hf_message(client, request, text, sizeof text);
        fail(text);
    }
    if (status == HF_E_LOST && reply.executed == HF_MAYBE_EXECUTED)
        unknown++;
    window->ended_with(window, window->tags[at], status, &reply);
    hf_release(client, request);
}

/* The place of one more request. */
static inline int place(struct window *window, long tag)
{
    int at;
    while (window->begun - window->ended >= WINDOW)
        end_oldest(window);
    at = window->begun++ % WINDOW;
    window->tags[at] = tag;
    return at;
}

static inline void end_all(struct window *window)
{
    while (window->ended < window->begun)
        end_oldest(window);
}

/* Begins a command of strings. */
static inline void command(struct window *window, long tag, unsigned flags, int argc, const char *const *argv)
{
    size_t lens[ARGS];
    hf_request *request = &window->requests[place(window, tag)];
    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    need(hf_command(client, argc, (const void *const *)argv, lens, 1, flags, NULL, 0, request), argv[0]);
}

/* Tells those who want to disturb the program that it is in the midst of it. */
static inline void tell_half(void)
{
    if (rank == 0) {
        printf("half\n");
        fflush(stdout);
    }
}

static inline double start_clock(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime();
}

/* Prints what a part of the program took: its requests, those of all processes, in so many seconds. */
static inline void tell(const char *part, double started, long requests)
{
    double seconds = MPI_Wtime() - started, slowest, sum;
    long all[2], own[2] = { requests, unknown };

    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(own, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("result %s %d %ld %.6f %.3f %ld\n", part, ranks, all[0], slowest, sum / all[0] * 1e6, all[1]);
}

static inline int finish(void)
{
    hf_close(client);
    if (rank == 0)
        printf("verified\n");
    MPI_Finalize();
    return 0;
}

#endif
