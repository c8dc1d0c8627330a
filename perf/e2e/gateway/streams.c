/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of tokens: an engine that sends tokens at even times (streams --serve PORT), and clients
 * that record their arrival (streams --ask PORT). A token carries its time of departure and the
 * arrival time of its request, so that both directions are measured separately. Each side is one
 * thread with one epoll; both use the clock of this machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM	65536u
#define STALL	1000000000ull  /* ns between two tokens of a stream that count as a stall */
#define SILENCE 30000000000ull /* ns without data on all streams after which the run ends */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct conn {
	struct conn *next; /* engine: queue in the order of `due` */
	int fd;
	uint32_t len, tokens;
	bool asked;
	uint64_t got, due;	     /* engine: arrival of the request, next token; client: start */
	uint64_t sent, first, last;  /* client: request sent, first and last token received */
	uint32_t chunk_left, rounds; /* client: bytes left of the chunk; requests left */
	uint32_t event;		     /* client: bytes of the event received */
	char head[160];		     /* client: start of the event */
	uint8_t state;		     /* client: enum part */
	char buf[ROOM];
};

enum part { HEAD, SIZE, DATA, DATA_END };

static int ep;
static uint32_t n_tokens = 64, n_streams = 512, n_rounds = 1, body_bytes = 1024;
static uint64_t gap_ns = 40000000,
		step_ns; /* engine: tokens leave at multiples of step_ns; 0: at any time */

static void watch_conn(struct conn *c, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = c};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e) < 0)
		abort();
}

static void send_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		const ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return; /* the reader detects the end of the connection */
		p += k;
		n -= (size_t)k;
	}
}

static int set_nodelay(int fd)
{
	const int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* ---- the engine ---- */

static struct conn *due_first, **due_last = &due_first;

static void queue_conn(struct conn *c)
{
	c->next = NULL;
	*due_last = c;
	due_last = &c->next;
}

static void put_token(struct conn *c)
{
	char event[256], chunk[320];
	const int n = snprintf(event, sizeof(event),
			       "data: {\"at\":%llu,\"got\":%llu,\"object\":\"text_completion\","
			       "\"choices\":[{\"index\":0,\"text\":\" token\"}]}\n\n",
			       (unsigned long long)now_ns(), (unsigned long long)c->got);
	const bool last = ++c->tokens == n_tokens;

	send_all(c->fd, chunk,
		 (size_t)snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n%s", n, event,
				  last ? "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n" : ""));
	if (last) {
		c->asked = false;
		return;
	}
	c->due += gap_ns;
	queue_conn(c);
}

static void answer_request(struct conn *c, bool post)
{
	static const char stream[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
				     "transfer-encoding: chunked\r\n\r\n";
	static const char plain[] = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
				    "content-length: 2\r\n\r\n{}";

	if (!post) {
		send_all(c->fd, plain, sizeof(plain) - 1);
		return;
	}
	send_all(c->fd, stream, sizeof(stream) - 1);
	c->asked = true;
	c->tokens = 0;
	c->got = c->due = now_ns();
	if (step_ns > 0) /* further tokens leave together with those of other streams */
		c->due += step_ns - c->due % step_ns;
	put_token(c);
}

static void read_request(struct conn *c)
{
	const ssize_t n = recv(c->fd, c->buf + c->len, ROOM - 1 - c->len, MSG_DONTWAIT);
	char *end, *length;
	size_t need;

	if (n <= 0) {
		/* A stream without a reader continues until its last token. */
		if (n == 0 || errno != EAGAIN) {
			epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
			if (!c->asked) {
				close(c->fd);
				free(c);
			}
		}
		return;
	}
	c->len += (uint32_t)n;
	c->buf[c->len] = '\0';
	end = strstr(c->buf, "\r\n\r\n");
	if (end == NULL)
		return;
	length = strcasestr(c->buf, "content-length:");
	need = (size_t)(end + 4 - c->buf) +
	       (length != NULL && length < end ? strtoul(length + 15, NULL, 10) : 0);
	if (c->len < need)
		return;
	c->len = 0; /* clients do not pipeline requests */
	answer_request(c, strncmp(c->buf, "POST", 4) == 0);
}

static void serve_clients(int listener)
{
	for (;;) {
		const uint64_t now = now_ns();
		struct epoll_event e[64];
		struct timespec wait = {1, 0};
		int n;

		if (due_first != NULL && due_first->due <= now) {
			struct conn *c = due_first;

			due_first = c->next;
			if (due_first == NULL)
				due_last = &due_first;
			put_token(c);
			continue;
		}
		if (due_first != NULL)
			wait = (struct timespec){(time_t)((due_first->due - now) / 1000000000),
						 (long)((due_first->due - now) % 1000000000)};
		n = epoll_pwait2(ep, e, 64, &wait, NULL);
		for (int i = 0; i < n; i++) {
			struct conn *c = e[i].data.ptr;

			if (c != NULL) {
				read_request(c);
				continue;
			}
			c = calloc(1, sizeof(*c));
			c->fd = set_nodelay(accept(listener, NULL, NULL));
			watch_conn(c, EPOLLIN);
		}
	}
}

/* ---- the clients ---- */

struct samples {
	uint32_t *us;
	size_t n, cap;
};

static struct samples there, first, way, back, gaps;
static uint64_t tokens_seen, stalled, wrong, longest;
static char *request;
static size_t request_len;

static void add_sample(struct samples *s, uint64_t ns)
{
	if (s->n == s->cap) {
		s->cap = s->cap * 2 + 1024;
		s->us = realloc(s->us, s->cap * sizeof(s->us[0]));
	}
	s->us[s->n++] = (uint32_t)(ns / 100); /* unit: 0.1 us */
}

static int by_size(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void print_samples(const char *name, struct samples *s)
{
	qsort(s->us, s->n, sizeof(s->us[0]), by_size);
	printf("\"%s_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}, ", name,
	       s->n ? s->us[s->n / 2] / 10.0 : 0, s->n ? s->us[s->n * 99 / 100] / 10.0 : 0,
	       s->n ? s->us[s->n - 1] / 10.0 : 0);
}

static void on_event(struct conn *c, uint64_t now)
{
	unsigned long long at, got;

	if (strncmp(c->head, "data: [DONE]", 12) == 0)
		return;
	if (sscanf(c->head, "data: {\"at\":%llu,\"got\":%llu", &at, &got) != 2) {
		wrong++;
		return;
	}
	add_sample(&back, now - at);
	if (c->tokens++ == 0) {
		add_sample(&there, got - c->sent);
		add_sample(&first, now - c->sent);
		add_sample(&way, got - c->sent + now - at); /* without the time in the engine */
		c->first = now;
	} else if (now - c->last > STALL) {
		stalled++;
	}
	if (c->tokens > 1 && now - c->last > longest)
		longest = now - c->last;
	c->last = now;
	tokens_seen++;
}

/* Parse bytes of events, which end with an empty line. Only the start of an event is kept. */
static void on_data(struct conn *c, const char *p, size_t n, uint64_t now)
{
	static const uint32_t keep = sizeof(c->head) - 1;

	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n' && c->event == 0)
			continue; /* the empty line */
		if (p[i] != '\n') {
			if (c->event < keep)
				c->head[c->event++] = p[i];
			continue;
		}
		c->head[c->event] = '\0';
		c->event = 0;
		on_event(c, now);
	}
}

static void send_request(struct conn *c)
{
	c->tokens = c->event = c->len = 0;
	c->state = HEAD;
	c->sent = now_ns();
	send_all(c->fd, request, request_len);
}

/* End one request and send the next. @return false if there is none. */
static bool end_round(struct conn *c)
{
	wrong += c->tokens != n_tokens;
	if (c->tokens > 1)
		add_sample(&gaps, (c->last - c->first) / (c->tokens - 1));
	if (--c->rounds > 0) {
		send_request(c);
		return true;
	}
	close(c->fd);
	return false;
}

/* Parse bytes of an answer. @return false if the stream is done. */
static bool take_bytes(struct conn *c, const char *p, size_t n, uint64_t now)
{
	while (n > 0) {
		size_t k = 1;

		if (c->state == DATA) {
			k = n < c->chunk_left ? n : c->chunk_left;
			on_data(c, p, k, now);
			c->chunk_left -= (uint32_t)k;
			if (c->chunk_left == 0)
				c->state = DATA_END;
		} else if (c->len + 1 < ROOM && (c->state != HEAD || c->len > 0 || *p == 'H')) {
			c->buf[c->len++] = *p;
			c->buf[c->len] = '\0';
			if (c->state == HEAD && *p == '\n' && c->len >= 4 &&
			    strcmp(c->buf + c->len - 4, "\r\n\r\n") == 0) {
				wrong += strncmp(c->buf, "HTTP/1.1 200", 12) != 0;
				c->len = 0;
				c->state = SIZE;
			} else if (c->state == DATA_END && *p == '\n') {
				c->len = 0;
				c->state = SIZE;
			} else if (c->state == SIZE && *p == '\n' && c->len > 2) {
				c->chunk_left = (uint32_t)strtoul(c->buf, NULL, 16);
				c->state = c->chunk_left > 0 ? DATA : SIZE;
				c->len = 0;
				if (c->chunk_left == 0)
					return end_round(c); /* ignores the final empty line */
			} else if (c->state == SIZE && *p == '\n') {
				c->len = 0;
			}
		}
		p += k;
		n -= k;
	}
	return true;
}

/* @return false if the stream is done. */
static bool read_answer(struct conn *c)
{
	char in[16384];
	const ssize_t n = recv(c->fd, in, sizeof(in), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0) {
		wrong++;
		close(c->fd);
		return false;
	}
	return take_bytes(c, in, (size_t)n, now_ns());
}

static void make_request(void)
{
	char *p = malloc(body_bytes + 512);
	char *body = malloc(body_bytes + 64);
	int n = sprintf(body,
			"{\"model\":\"default\",\"stream\":true,\"max_tokens\":%u,\"prompt\":[1",
			n_tokens);

	for (uint32_t i = 0; (uint32_t)n + 8 < body_bytes; i++)
		n += sprintf(body + n, ",%u", 10000 + i % 80000);
	n += sprintf(body + n, "]}");
	request = p;
	request_len = (size_t)sprintf(p,
				      "POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
				      "content-type: application/json\r\n"
				      "content-length: %d\r\n\r\n%s",
				      n, body);
	free(body);
}

/* Time between the starts of two streams: all start within the duration of one stream, and no two
 * have tokens at the same time. */
static uint64_t choose_spacing(void)
{
	uint32_t share = n_tokens;

	for (;; share++) {
		uint32_t a = share, b = n_streams;

		while (b != 0) {
			const uint32_t rest = a % b;

			a = b;
			b = rest;
		}
		if (a == 1)
			return gap_ns * share / n_streams;
	}
}

static void ask_all(uint16_t port)
{
	const struct sockaddr_in at = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
	struct conn **all = calloc(n_streams, sizeof(all[0]));
	uint32_t begun = 0, running = 0;
	const uint64_t start = now_ns(), apart = choose_spacing();
	uint64_t last_input = start;

	make_request();
	for (uint32_t i = 0; i < n_streams; i++) {
		struct conn *c = all[i] = calloc(1, sizeof(*c));

		c->fd = set_nodelay(socket(AF_INET, SOCK_STREAM, 0));
		if (connect(c->fd, (const struct sockaddr *)&at, sizeof(at)) < 0) {
			perror("connect");
			exit(1);
		}
		c->rounds = n_rounds;
		c->due = start + 200000000 + apart * i;
		watch_conn(c, EPOLLIN);
	}
	while ((begun < n_streams || running > 0) && now_ns() - last_input < gap_ns + SILENCE) {
		struct epoll_event e[64];
		struct timespec wait = {1, 0};
		const uint64_t now = now_ns();
		int n;

		if (begun < n_streams && all[begun]->due <= now) {
			send_request(all[begun++]);
			running++;
			continue;
		}
		if (begun < n_streams)
			wait = (struct timespec){0, (long)((all[begun]->due - now) % 1000000000)};
		n = epoll_pwait2(ep, e, 64, &wait, NULL);
		if (n > 0)
			last_input = now_ns();
		for (int i = 0; i < n; i++)
			running -= !read_answer(e[i].data.ptr);
	}
	printf("{\"streams\": %u, \"rounds\": %u, \"tokens\": %llu, \"unfinished\": %u, \"wrong\": "
	       "%llu, "
	       "\"stalled\": %llu, ",
	       n_streams, n_rounds, (unsigned long long)tokens_seen, running,
	       (unsigned long long)wrong, (unsigned long long)stalled);
	print_samples("there", &there);
	print_samples("ttft", &first);
	print_samples("way", &way);
	print_samples("token", &back);
	print_samples("itl", &gaps);
	printf("\"longest_gap_us\": %.1f, \"seconds\": %.1f}\n", (double)longest / 1000,
	       (double)(now_ns() - start) / 1e9);
	exit(running > 0 || wrong > 0 || stalled > 0);
}

static uint32_t read_option(int argc, char **argv, const char *name, uint32_t value)
{
	for (int i = 3; i + 1 < argc; i += 2)
		if (strcmp(argv[i], name) == 0)
			value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
	return value;
}

int main(int argc, char **argv)
{
	const int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct epoll_event e = {.events = EPOLLIN};

	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr,
			"usage: streams --serve PORT | --ask PORT [--tokens N] [--gap-us N] "
			"[--streams N] [--rounds N] [--bytes N] [--step-us N]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	n_tokens = read_option(argc, argv, "--tokens", n_tokens);
	gap_ns = read_option(argc, argv, "--gap-us", (uint32_t)(gap_ns / 1000)) * 1000ull;
	step_ns = read_option(argc, argv, "--step-us", 0) * 1000ull;
	n_streams = read_option(argc, argv, "--streams", n_streams);
	n_rounds = read_option(argc, argv, "--rounds", n_rounds);
	body_bytes = read_option(argc, argv, "--bytes", body_bytes);
	ep = epoll_create1(0);
	if (strcmp(argv[1], "--ask") == 0)
		ask_all((uint16_t)atoi(argv[2]));
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(listener, 1024) < 0) {
		perror("streams");
		return 1;
	}
	epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e);
	serve_clients(listener);
	return 1;
}
