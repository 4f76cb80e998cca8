/* Makes a random directed graph: each process draws two vertices, and adds the edge if there is none, until it has added as many as
   it is to.

   mpicc graph.c -o graph $(pkg-config --cflags --libs holdfast) && mpirun -n 4 graph 127.0.0.1:6379 50000 */

#include "example.h"

enum { NAME = 24 };

struct edge {
    int from, to;
    /* A request to add it was lost, so that it may be there since. */
    int doubtful;
};

static int vertices;
static struct edge *edges;
static long drawn, added, doubtful, sum;

static void name(const char *kind, int vertex, char *to)
{
    snprintf(to, NAME, "graph:%s:%d", kind, vertex);
}

/* The two requests of an edge: an even tag adds it to where it begins, an odd one to where it ends. The first one's reply says
   whether it is new. */
static void add_end(struct window *window, long tag)
{
    const struct edge *edge = &edges[tag / 2];
    char key[NAME], member[NAME];
    name(tag % 2 ? "in" : "out", tag % 2 ? edge->to : edge->from, key);
    snprintf(member, NAME, "%d", tag % 2 ? edge->from : edge->to);
    command(window, tag, 0, 3, (const char *[]){ "SADD", key, member });
}

static void edge_added(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    struct edge *edge = &edges[tag / 2];
    if (status != HF_OK) {
        /* To add an edge twice does no harm. */
        edge->doubtful |= tag % 2 == 0 && reply->executed == HF_MAYBE_EXECUTED;
        add_end(window, tag);
    } else if (tag % 2 == 0) {
        if (reply->integer == 1)
            added++;
        else if (edge->doubtful)
            doubtful++;
    }
}

static void degree(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    (void)window;
    if (status != HF_OK)
        fail("no degree");
    sum += tag % 2 ? -reply->integer : reply->integer;
}

static void is_there(struct window *window, long tag, hf_status status, const hf_reply *reply)
{
    (void)window;
    if (status != HF_OK || reply->integer != 1) {
        fprintf(stderr, "%d to %d, %s\n", edges[tag / 2].from, edges[tag / 2].to, tag % 2 ? "in" : "out");
        fail("an edge is missing");
    }
}

int main(int argc, char **argv)
{
    long wanted = begin(argc, argv), all[2], own[2], total, requests = 0;
    long long random = rank + 1;
    struct window window = { .ended_with = edge_added }, degrees = { .ended_with = degree },
                  looks = { .ended_with = is_there };
    double started;
    int told = 0;
    char key[NAME], member[NAME];

    /* Of all edges that there may be, a hundredth; as many draws as are needed with a wide margin. */
    while ((long)vertices * vertices / 100 < wanted * ranks)
        vertices += 100;
    edges = calloc(wanted * 2 + 1000, sizeof *edges);

    started = start_clock();
    for (;;) {
        /* What is on its way may be new or not; only as many are begun as can be needed. */
        while (added + doubtful + (window.begun - window.ended) / 2 < wanted) {
            struct edge *edge = &edges[drawn];
            if (drawn == wanted * 2 + 1000)
                fail("hardly any edge is new");
            edge->from = draw(&random, vertices);
            edge->to = draw(&random, vertices);
            add_end(&window, 2 * drawn);
            add_end(&window, 2 * drawn + 1);
            drawn++;
            if (!told && drawn >= wanted / 2) {
                tell_half();
                told = 1;
            }
        }
        if (window.begun == window.ended)
            break;
        end_oldest(&window);
    }
    tell("graph", started, 2 * drawn);

    /* Every edge of this process is there, seen from both ends. */
    started = start_clock();
    for (long tag = 0; tag < 2 * drawn; tag++, requests++) {
        const struct edge *edge = &edges[tag / 2];
        name(tag % 2 ? "in" : "out", tag % 2 ? edge->to : edge->from, key);
        snprintf(member, NAME, "%d", tag % 2 ? edge->from : edge->to);
        command(&looks, tag, HF_READ_ONLY, 3, (const char *[]){ "SISMEMBER", key, member });
    }
    end_all(&looks);
    tell("graph-read", started, requests);

    /* There are as many as were new, and none but those, seen from both ends. */
    for (int end = 0; end < 2; end++) {
        sum = 0;
        for (int vertex = rank; vertex < vertices; vertex += ranks) {
            name(end ? "in" : "out", vertex, key);
            command(&degrees, 0, HF_READ_ONLY, 2, (const char *[]){ "SCARD", key });
        }
        end_all(&degrees);
        MPI_Allreduce(&sum, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        own[0] = added;
        own[1] = doubtful;
        MPI_Allreduce(own, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (total < all[0] || total > all[0] + all[1])
            fail("another number of edges");
    }
    if (added + doubtful < wanted)
        fail("fewer edges than wanted");
    free(edges);
    return finish();
}
