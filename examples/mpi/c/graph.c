/* Makes a random directed graph: each process draws pairs of vertices, and adds those edges of them that are not there, some at a time,
   until it has added as many as it is to.

   mpicc graph.c -o graph $(pkg-config --cflags --libs holdfast) && mpirun -n 4 graph 127.0.0.1:6379 50000 */

#include "example.h"

enum { NAME = 24, EDGES = 10 };

struct edge {
    int from, to;
};

/* The edges that a request adds. */
struct batch {
    long first, edges;
    /* A request to add them was lost, so that they may be there since. */
    int doubtful;
};

static int vertices;
static struct edge *edges;
static struct batch *batches;
/* Edges that were drawn, those of them whose requests have ended, the new ones among these, and those of which nobody can tell. */
static long drawn, ended, added, doubtful;
static long outgoing, incoming;

static void name(int vertex, char *to)
{
    snprintf(to, NAME, "graph:%d", vertex);
}

static void add(struct window *window, long tag)
{
    const struct batch *batch = &batches[tag];
    char names[2 * EDGES][NAME];
    const char *args[1 + 2 * EDGES] = { "GRAPH.ADDEDGE" };
    for (long i = 0; i < batch->edges; i++) {
        name(edges[batch->first + i].from, names[2 * i]);
        name(edges[batch->first + i].to, names[2 * i + 1]);
    }
    for (long i = 0; i < 2 * batch->edges; i++)
        args[1 + i] = names[i];
    command(window, tag, 0, 1 + 2 * (int)batch->edges, args);
}

static void edges_added(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    struct batch *batch = &batches[tag];
    if (status != HF_OK) {
        /* To add an edge twice does no harm. */
        batch->doubtful |= reply->executed == HF_MAYBE_EXECUTED;
        add(window, tag);
        return;
    }
    ended += batch->edges;
    added += reply->integer;
    if (batch->doubtful)
        doubtful += batch->edges - reply->integer;
}

static void is_there(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    (void)window;
    /* The score of a neighbour says which edges there are: 2 or 3 if one leads from it. */
    if (status != HF_OK || (tag % 2 ? reply->number < 2 : reply->integer != 1)) {
        fprintf(stderr, "%d to %d, %s\n", edges[tag / 2].from, edges[tag / 2].to, tag % 2 ? "in" : "out");
        fail("an edge is missing");
    }
}

static void degree(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    (void)window;
    (void)tag;
    if (status != HF_OK || reply->count != 4)
        fail("no degree");
    outgoing += reply->items[1].integer;
    incoming += reply->items[3].integer;
}

int main(int argc, char **argv)
{
    long wanted = begin(argc, argv), all[2], own[2], ends[2], requests = 0, space;
    long long random = rank + 1;
    struct window window = { .ended_with = edges_added }, degrees = { .ended_with = degree },
                  looks = { .ended_with = is_there };
    double started;
    int told = 0;
    char from[NAME], to[NAME];

    /* Of all edges that there may be, a hundredth; as many draws as are needed with a wide margin. */
    while ((long)vertices * vertices / 100 < wanted * ranks)
        vertices += 100;
    space = wanted * 2 + 1000;
    edges = calloc(space, sizeof *edges);
    batches = calloc(space, sizeof *batches);

    started = start_clock();
    for (;;) {
        /* What is on its way may be new or not; only as many are begun as can be needed. */
        while (added + doubtful + (drawn - ended) < wanted) {
            long missing = wanted - (added + doubtful + (drawn - ended));
            struct batch *batch = &batches[requests];
            *batch = (struct batch){ drawn, missing < EDGES ? missing : EDGES, 0 };
            if (drawn + batch->edges > space)
                fail("hardly any edge is new");
            for (long i = 0; i < batch->edges; i++, drawn++) {
                edges[drawn].from = draw(&random, vertices);
                edges[drawn].to = draw(&random, vertices);
            }
            add(&window, requests++);
            if (!told && drawn >= wanted / 2) {
                tell_half();
                told = 1;
            }
        }
        if (window.begun == window.ended)
            break;
        end_oldest(&window);
    }
    tell("graph", started, requests);

    /* Every edge of this process is there, seen from both ends. */
    started = start_clock();
    for (long tag = 0; tag < 2 * drawn; tag++) {
        name(edges[tag / 2].from, from);
        name(edges[tag / 2].to, to);
        if (tag % 2)
            command(&looks, tag, HF_READ_ONLY, 3, (const char *[]){ "ZSCORE", to, from });
        else
            command(&looks, tag, HF_READ_ONLY, 3, (const char *[]){ "GRAPH.ISCONNECTED", from, to });
    }
    end_all(&looks);
    tell("graph-read", started, 2 * drawn);

    /* There are as many as were new, and none but those, seen from both ends. */
    for (int vertex = rank; vertex < vertices; vertex += ranks) {
        name(vertex, from);
        command(&degrees, 0, HF_READ_ONLY, 2, (const char *[]){ "GRAPH.DEGREE", from });
    }
    end_all(&degrees);
    own[0] = outgoing;
    own[1] = incoming;
    MPI_Allreduce(own, ends, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    own[0] = added;
    own[1] = doubtful;
    MPI_Allreduce(own, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int end = 0; end < 2; end++)
        if (ends[end] < all[0] || ends[end] > all[0] + all[1])
            fail("another number of edges");
    if (ends[0] != ends[1])
        fail("edges without one of their ends");
    if (added + doubtful < wanted)
        fail("fewer edges than wanted");
    free(edges);
    free(batches);
    return finish();
}
