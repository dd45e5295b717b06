/* Answers as an inference server that costs next to nothing, so that what stands before it is what is measured.
 *
 *   engine PORT MODEL TOKENS GAP_MS
 *
 * A POST is answered once its body is there: with a chat completion, or, where the body's beginning or end has
 * `"stream": true`, with TOKENS server-sent events, GAP_MS apart. GET /v1/models names the model, /metrics is that of an
 * idle vLLM, and every other path, as /health, has an empty answer with 200. One thread. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

enum { READ_BYTES = 1 << 18, EVENTS = 256, EDGE = 512, ANSWER = 4096 };

struct connection {
    int fd;
    struct message request;
    char edge[EDGE]; /* the last bytes of the body */
    bool streamed;
    int tokens_left;
    double due; /* of the next token */
    struct connection *next; /* in the line of those that stream, by due */
    bool in_line, gone;
};

static int poller, tokens;
static double gap;
static const char *model;
static char completion[ANSWER], event[ANSWER], usage[ANSWER], models[ANSWER], metrics[ANSWER];
static struct connection *line_first, *line_last;

static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
static const char NOTHING[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
static const char ASKED[] = "\"stream\":true", ASKED_SPACED[] = "\"stream\": true";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void plain(char *to, const char *type, const char *body) {
    int n = snprintf(to, ANSWER, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", type,
                     strlen(body), body);
    if (n >= ANSWER) die("the model's name is too long");
}

static void chunk(char *to, const char *data, const char *after) {
    if (snprintf(to, ANSWER, "%zx\r\n%s\r\n%s", strlen(data), data, after) >= ANSWER) die("the model's name is too long");
}

static void prepare(void) {
    char body[ANSWER / 2];
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-9f2c1d7e5b8a4c3f\",\"object\":\"chat.completion\",\"created\":1700000000,"
             "\"model\":\"%s\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The harbour "
             "has been the town's main source of income for most of its history, and the figures of the two years differ "
             "because the later ones count goods that were only passing through. Taken together they show a slow but "
             "steady growth of the trade.\"},\"finish_reason\":\"stop\"}],"
             "\"usage\":{\"prompt_tokens\":421,\"completion_tokens\":50,\"total_tokens\":471}}",
             model);
    plain(completion, "application/json", body);
    snprintf(body, sizeof body,
             "data: {\"id\":\"chatcmpl-9f2c1d7e5b8a4c3f\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
             "\"model\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" harbour\"},"
             "\"finish_reason\":null}]}\n\n",
             model);
    chunk(event, body, "");
    snprintf(body, sizeof body,
             "data: {\"id\":\"chatcmpl-9f2c1d7e5b8a4c3f\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
             "\"model\":\"%s\",\"choices\":[],\"usage\":{\"prompt_tokens\":421,\"completion_tokens\":%d,"
             "\"total_tokens\":%d}}\n\ndata: [DONE]\n\n",
             model, tokens, 421 + tokens);
    chunk(usage, body, "0\r\n\r\n");
    snprintf(body, sizeof body,
             "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,"
             "\"owned_by\":\"vllm\",\"root\":\"%s\",\"max_model_len\":1048576}]}",
             model, model);
    plain(models, "application/json", body);
    snprintf(body, sizeof body,
             "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"%s\"} 0\n"
             "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"%s\"} 0\n"
             "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"%s\"} 0\n",
             model, model, model);
    plain(metrics, "text/plain; version=0.0.4", body);
}

/* What is sent is small next to a socket's buffer; who does not read it loses the connection. */
static bool put(struct connection *c, const char *data, size_t length) {
    return write(c->fd, data, length) == (ssize_t)length;
}

static void part(struct connection *c) {
    close(c->fd);
    c->gone = true;
    if (!c->in_line) free(c); /* else the line frees it */
}

static void line_up(struct connection *c, double due) {
    c->due = due;
    c->next = NULL;
    c->in_line = true;
    if (line_last != NULL) line_last->next = c;
    else line_first = c;
    line_last = c;
}

static void send_due(double at) {
    while (line_first != NULL && line_first->due <= at) {
        struct connection *c = line_first;
        line_first = c->next;
        if (line_first == NULL) line_last = NULL;
        c->in_line = false;
        if (c->gone) {
            free(c);
        } else if (c->tokens_left-- > 0) {
            if (put(c, event, strlen(event))) line_up(c, c->due + gap);
            else part(c);
        } else if (!put(c, usage, strlen(usage))) {
            part(c);
        }
    }
}

/* Returns whether the connection is still there. */
static bool answer(struct connection *c) {
    const char *head = c->request.head;
    bool posted = strncmp(head, "POST ", 5) == 0;
    bool streamed = c->streamed || memmem(c->edge, EDGE, ASKED, sizeof ASKED - 1) != NULL ||
                    memmem(c->edge, EDGE, ASKED_SPACED, sizeof ASKED_SPACED - 1) != NULL;
    const char *whole = posted                                    ? completion
                        : strncmp(head, "GET /v1/models", 14) == 0 ? models
                        : strncmp(head, "GET /metrics", 12) == 0   ? metrics
                                                                   : NOTHING;
    message_reset(&c->request);
    memset(c->edge, 0, EDGE);
    c->streamed = false;
    if (!posted || !streamed) return put(c, whole, strlen(whole));
    if (!put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1)) return false;
    c->tokens_left = tokens;
    line_up(c, now() + gap);
    return true;
}

static void keep_edges(struct connection *c, const char *body, size_t length) {
    if (c->request.body_read == length) { /* the beginning */
        size_t looked = length < EDGE ? length : EDGE;
        c->streamed = memmem(body, looked, ASKED, sizeof ASKED - 1) != NULL ||
                      memmem(body, looked, ASKED_SPACED, sizeof ASKED_SPACED - 1) != NULL;
    }
    if (length >= EDGE) {
        memcpy(c->edge, body + length - EDGE, EDGE);
    } else {
        memmove(c->edge, c->edge + length, EDGE - length);
        memcpy(c->edge + EDGE - length, body, length);
    }
}

static void read_on(struct connection *c) {
    static char buffer[READ_BYTES];
    ssize_t n = read(c->fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    ssize_t body = n > 0 ? message_take(&c->request, buffer, (size_t)n) : -1;
    if (body > 0) keep_edges(c, buffer + n - body, (size_t)body);
    if (body < 0 || (message_done(&c->request) && !answer(c))) part(c);
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        if (c == NULL) die("memory");
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event watched = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &watched) < 0) die("epoll_ctl");
    }
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "engine PORT MODEL TOKENS GAP_MS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    model = arguments[2];
    tokens = atoi(arguments[3]);
    gap = atof(arguments[4]) / 1000;
    prepare();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1024) < 0) die("listen");
    if ((poller = epoll_create1(0)) < 0) die("epoll");
    struct epoll_event watched = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &watched) < 0) die("epoll_ctl");
    for (;;) {
        struct timespec timeout, *until = NULL;
        if (line_first != NULL) {
            double wait = line_first->due - now();
            if (wait < 0) wait = 0;
            timeout = (struct timespec){(time_t)wait, (long)((wait - floor(wait)) * 1e9)};
            until = &timeout;
        }
        struct epoll_event events[EVENTS];
        int ready = epoll_pwait2(poller, events, EVENTS, until, NULL);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == NULL) accept_all(listener);
            else read_on(events[i].data.ptr);
        }
        send_due(now()); /* last, since it frees connections */
    }
}
