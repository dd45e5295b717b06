/* The little of HTTP/1.1 that the load generator and the engine need: where a message's head ends, how its body is
 * framed, and when the body is over. It is no parser for messages from strangers. */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 16384 };

/* One message while it is read. A body in chunks is over with the five bytes "0\r\n\r\n"; JSON and server-sent events
 * hold no "\r", so that these cannot stand in the body itself. */
struct message {
    char head[HEAD_MAX + 1];
    size_t head_length;
    bool head_done;
    bool chunked;
    size_t body_length; /* by content-length */
    size_t body_read;
    char tail[5];
};

static inline void message_reset(struct message *m) {
    m->head_length = m->body_length = m->body_read = 0;
    m->head_done = m->chunked = false;
    memset(m->tail, 0, sizeof m->tail);
}

static inline const char *message_header(const struct message *m, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(m->head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            while (*line == ' ') line++;
            return line;
        }
    }
    return NULL;
}

/* Takes what was read. Returns how many of its last bytes belong to the body, -1 if the head is too long. */
static inline ssize_t message_take(struct message *m, const char *data, size_t length) {
    size_t body = length;
    if (!m->head_done) {
        size_t room = HEAD_MAX - m->head_length, before = m->head_length;
        size_t copied = length < room ? length : room;
        memcpy(m->head + before, data, copied);
        m->head_length += copied;
        m->head[m->head_length] = 0;
        char *end = memmem(m->head, m->head_length, "\r\n\r\n", 4);
        if (end == NULL) return copied < length ? -1 : 0;
        m->head_done = true;
        size_t head = (size_t)(end + 4 - m->head);
        m->head[head] = 0;
        m->head_length = head;
        body = length - (head - before);
        const char *framing = message_header(m, "content-length");
        if (framing != NULL) m->body_length = strtoul(framing, NULL, 10);
        framing = message_header(m, "transfer-encoding");
        m->chunked = framing != NULL && strncasecmp(framing, "chunked", 7) == 0;
    }
    m->body_read += body;
    if (body >= 5) {
        memcpy(m->tail, data + length - 5, 5);
    } else if (body > 0) {
        memmove(m->tail, m->tail + body, 5 - body);
        memcpy(m->tail + 5 - body, data + length - body, body);
    }
    return (ssize_t)body;
}

static inline bool message_done(const struct message *m) {
    if (!m->head_done) return false;
    if (m->chunked) return memcmp(m->tail, "0\r\n\r\n", 5) == 0;
    return m->body_read >= m->body_length;
}

#endif
