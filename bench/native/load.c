/* Sends chat requests over HTTP/1.1 and prints what became of them as one JSON object.
 *
 *   load PORT PATH SECONDS WARM_UP CONNECTIONS RATE SEED BODY_FILE...
 *
 * With RATE 0 each of CONNECTIONS connections sends its next request when it has its answer: what can be had at most.
 * Otherwise requests are due at the times of a Poisson process of RATE a second, whatever became of those before, and
 * each is sent at once, on a new connection if all are in use. Its times count from when it was due, so that what a
 * slow answer holds up is counted (no coordinated omission). Bodies are drawn at random by SEED. Requests due in the
 * first WARM_UP seconds are sent and not counted.
 *
 * Times are in microseconds: `whole` to the end of each answer, `first` to the first byte of its body, `gaps` between
 * the pieces of an answer's body as they came. Of a closed loop no gaps are noted. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

enum { READ_BYTES = 1 << 18, EVENTS = 256, STATUSES = 600, GRACE_SECONDS = 15 };

struct request {
    char *data;
    size_t length;
};

struct samples {
    uint32_t *values;
    size_t count, room;
};

struct connection {
    int fd;
    struct connection *next_idle;
    struct message answer;
    const struct request *request;
    size_t written;
    double due, first, last;
    bool busy, counted;
};

static int poller, port;
static bool closed_loop;
static struct request *requests;
static size_t request_count;
static uint64_t dice;
static struct connection *idle;
static long in_flight, sent, failed, statuses[STATUSES];
static struct samples whole, first, gaps;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* xorshift64*; uniform in (0, 1]. */
static double roll(void) {
    dice ^= dice >> 12, dice ^= dice << 25, dice ^= dice >> 27;
    return ((double)((dice * 2685821657736338717ULL) >> 11) + 1.0) / 9007199254740992.0;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void note(struct samples *to, double seconds) {
    if (to->count == to->room) {
        to->room = to->room ? to->room * 2 : 4096;
        to->values = realloc(to->values, to->room * sizeof *to->values);
        if (to->values == NULL) die("memory");
    }
    to->values[to->count++] = (uint32_t)(seconds * 1e6 + 0.5);
}

static void watch(struct connection *c, int operation, bool writable) {
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event) < 0) die("epoll_ctl");
}

static struct connection *connection_new(void) {
    struct connection *c = calloc(1, sizeof *c);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    if (c == NULL || (c->fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(c->fd);
        free(c);
        return NULL;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, false);
    return c;
}

static void write_on(struct connection *c);

/* Begins a request on any free connection. */
static void send_one(double due, bool counted) {
    struct connection *c = idle;
    if (c != NULL) {
        idle = c->next_idle;
    } else if ((c = connection_new()) == NULL) {
        sent += counted, failed += counted;
        return;
    }
    message_reset(&c->answer);
    c->request = &requests[(size_t)(roll() * (double)request_count) % request_count];
    c->written = 0;
    c->due = due;
    c->first = c->last = 0;
    c->busy = true;
    c->counted = counted;
    sent += counted;
    in_flight++;
    write_on(c);
}

static void lost(struct connection *c) {
    if (c->busy) {
        in_flight--;
        failed += c->counted;
    } else {
        struct connection **at = &idle;
        while (*at != NULL && *at != c) at = &(*at)->next_idle;
        if (*at == c) *at = c->next_idle;
    }
    close(c->fd);
    free(c);
}

static void write_on(struct connection *c) {
    while (c->written < c->request->length) {
        ssize_t n = send(c->fd, c->request->data + c->written, c->request->length - c->written, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLL_CTL_MOD, true);
            return;
        }
        if (n < 0) return; /* the read that follows says so too, and counts it */
        c->written += (size_t)n;
    }
}

static void answered(struct connection *c, double at) {
    int status = atoi(c->answer.head + 9);
    if (c->counted) {
        statuses[status > 0 && status < STATUSES ? status : 0]++;
        failed += status != 200;
        note(&whole, at - c->due);
        note(&first, (c->first > 0 ? c->first : at) - c->due);
    }
    c->busy = false;
    in_flight--;
    c->next_idle = idle;
    idle = c;
}

/* Returns whether an answer has ended. */
static bool read_on(struct connection *c) {
    static char buffer[READ_BYTES];
    ssize_t n = read(c->fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return false;
    ssize_t body = n > 0 && c->busy ? message_take(&c->answer, buffer, (size_t)n) : -1;
    if (body < 0) {
        lost(c);
        return closed_loop;
    }
    double at = now();
    bool done = message_done(&c->answer);
    if (body > 0) {
        if (c->first == 0) c->first = at;
        else if (!closed_loop && c->counted && !done) note(&gaps, at - c->last);
        c->last = at;
    }
    if (done) answered(c, at);
    return done;
}

static struct request request_of(const char *path, const char *file) {
    struct stat about;
    int fd = open(file, O_RDONLY);
    if (fd < 0 || fstat(fd, &about) < 0) die(file);
    size_t size = (size_t)about.st_size;
    struct request r = {.data = malloc(size + 1024)};
    if (r.data == NULL) die("memory");
    r.length = (size_t)sprintf(r.data,
                               "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                               "content-length: %zu\r\n\r\n",
                               path, port, size);
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, r.data + r.length, size - got);
        if (n <= 0) die(file);
        got += (size_t)n, r.length += (size_t)n;
    }
    close(fd);
    return r;
}

static void print_samples(const char *name, const struct samples *s) {
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < s->count; i++) printf(i ? ",%u" : "%u", s->values[i]);
    printf("]");
}

int main(int count, char **arguments) {
    if (count < 9) {
        fprintf(stderr, "load PORT PATH SECONDS WARM_UP CONNECTIONS RATE SEED BODY_FILE...\n");
        return 2;
    }
    port = atoi(arguments[1]);
    double seconds = atof(arguments[3]), warm_up = atof(arguments[4]), rate = atof(arguments[6]);
    int connections = atoi(arguments[5]);
    closed_loop = rate <= 0;
    dice = 88172645463325252ULL ^ strtoull(arguments[7], NULL, 10);
    request_count = (size_t)(count - 8);
    requests = calloc(request_count, sizeof *requests);
    for (size_t i = 0; i < request_count; i++) requests[i] = request_of(arguments[2], arguments[8 + i]);
    if ((poller = epoll_create1(0)) < 0) die("epoll");
    for (int i = 0; i < connections; i++) {
        struct connection *c = connection_new();
        if (c == NULL) die("connect");
        c->next_idle = idle;
        idle = c;
    }
    double begin = now() + 0.01, counted_from = begin + warm_up, end = counted_from + seconds;
    double next = begin, give_up = end + GRACE_SECONDS;
    for (double at = now(); at < give_up; at = now()) {
        if (closed_loop) {
            while (at < end && in_flight < connections) send_one(now(), at >= counted_from);
        } else {
            for (; next <= at && next < end; next -= log(roll()) / rate) send_one(next, next >= counted_from);
        }
        if (at >= end && (closed_loop || next >= end) && in_flight == 0) break;
        double wait = closed_loop || next >= end ? 0.1 : next - now();
        if (wait < 0) wait = 0;
        struct timespec timeout = {(time_t)wait, (long)((wait - floor(wait)) * 1e9)};
        struct epoll_event events[EVENTS];
        int ready = epoll_pwait2(poller, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                write_on(c);
                if (c->written == c->request->length) watch(c, EPOLL_CTL_MOD, false);
            }
            bool ended = events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) && read_on(c);
            if (ended && closed_loop) {
                double then = now();
                if (then < end) send_one(then, then >= counted_from);
            }
        }
    }
    printf("{\"sent\": %ld, \"failed\": %ld, \"unanswered\": %ld, \"seconds\": %g, \"statuses\": {", sent,
           failed, in_flight, seconds);
    const char *comma = "";
    for (int i = 0; i < STATUSES; i++) {
        if (statuses[i]) printf("%s\"%d\": %ld", comma, i, statuses[i]), comma = ", ";
    }
    printf("}");
    print_samples("whole", &whole);
    print_samples("first", &first);
    print_samples("gaps", &gaps);
    printf("}\n");
    return 0;
}
