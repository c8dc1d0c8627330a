/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same events through kvroute-agent itself. This process is its engine, which publishes them by
 * ZMQ, and its router, which acknowledges them. CPU time of the agent's thread and of libzmq's
 * threads is read from /proc. See README.md.
 */
#include "batches.h"
#include "router.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define STUCK_S 20.0 /* limit of the time without an acknowledgement */

static struct batches made;
static struct router router = {.sleeps = true};

/* ---- the engine ---- */

/* Answer every request (/health, /metrics) with the same page. */
static void *http_main(void *arg)
{
	static const char page[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 28\r\n"
				   "\r\nvllm:num_requests_running 0\n";
	const int *listener = arg;
	char ask[4096];

	for (;;) {
		const int fd = accept(*listener, NULL, NULL);

		if (fd < 0)
			return NULL;
		if (read(fd, ask, sizeof(ask)) > 0 && write(fd, page, sizeof(page) - 1) > 0)
			shutdown(fd, SHUT_WR);
		close(fd);
	}
}

/* @return the port of the server, or 0. */
static unsigned int http_start(int *listener)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);
	pthread_t thread;

	*listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(*listener, (struct sockaddr *)&at, len) < 0 || listen(*listener, 16) < 0 ||
	    getsockname(*listener, (struct sockaddr *)&at, &len) < 0)
		return 0;
	pthread_create(&thread, NULL, http_main, listener);
	pthread_detach(thread);
	return ntohs(at.sin_port);
}

struct publisher {
	void *ctx, *socket;
	char endpoint[128];
	uint64_t number;	 /* of the next batch */
	uint64_t blocks, passes; /* sent: blocks stored and removed; complete passes */
	uint64_t window; /* maximum of blocks that the router stub has not seen; 0: no limit */
};

/* An XPUB reports subscriptions and, with NODROP, waits where a PUB drops. */
static int publisher_open(struct publisher *p, const char *bind_to)
{
	const int wait = 1, batches = 1000;
	size_t len = sizeof(p->endpoint);

	p->ctx = zmq_ctx_new();
	p->socket = zmq_socket(p->ctx, ZMQ_XPUB);
	zmq_setsockopt(p->socket, ZMQ_XPUB_NODROP, &wait, sizeof(wait));
	zmq_setsockopt(p->socket, ZMQ_SNDHWM, &batches, sizeof(batches));
	if (zmq_bind(p->socket, bind_to) < 0)
		return -zmq_errno();
	zmq_getsockopt(p->socket, ZMQ_LAST_ENDPOINT, p->endpoint, &len);
	return 0;
}

static void keep_data(void *data, void *hint)
{
}

static void publish_batch(struct publisher *p, const struct batch *b)
{
	uint8_t number[8];
	zmq_msg_t m;

	for (unsigned int i = 0; i < 8; i++)
		number[i] = (uint8_t)(p->number >> (56 - 8 * i));
	p->number++;
	zmq_msg_init_data(&m, b->p, b->len, keep_data, NULL);
	if (zmq_send(p->socket, "", 0, ZMQ_SNDMORE) < 0 ||
	    zmq_send(p->socket, number, sizeof(number), ZMQ_SNDMORE) < 0 ||
	    zmq_msg_send(&m, p->socket, 0) < 0)
		abort();
}

static double read_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Wait until the router stub has seen all but @p most blocks. @return false after a timeout. */
static bool wait_for(const struct publisher *p, uint64_t most)
{
	const struct timespec pause = {.tv_nsec = 20000};
	double since = read_clock();
	uint64_t seen = 0, at;

	while ((at = atomic_load_explicit(&router.blocks, memory_order_relaxed)) + most <
	       p->blocks) {
		if (at != seen)
			since = read_clock();
		seen = at;
		if (atomic_load(&router.lost) > 0 || read_clock() - since > STUCK_S)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Publish all batches once. @return false if blocks do not arrive. */
static bool publish_pass(struct publisher *p)
{
	for (uint32_t i = 0; i < made.n; i++) {
		publish_batch(p, &made.batch[i]);
		/* Half of the batches store what the others remove. */
		p->blocks = p->passes * 2 * made.blocks + 2ull * made.blocks * (i + 1) / made.n;
		if (p->window > 0 && !wait_for(p, p->window))
			return false;
	}
	p->passes++;
	return true;
}

/* ---- the agent ---- */

static pid_t start_agent(const char *path, unsigned int port, const char *events)
{
	char engine[64], at[32], blocks[16];
	pid_t pid;

	snprintf(engine, sizeof(engine), "http://127.0.0.1:%u", port);
	snprintf(blocks, sizeof(blocks), "%u", 2 * made.blocks);
	router_address(&router, at, sizeof(at));
	pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(path, path, "--engine", engine, "--router", at, "--pool", "p", "--worker", "1",
	      "--block-size", "16", "--bind", "127.0.0.1", "--bodies", "off", "--canary-s", "0",
	      "--frame-bytes", "8952", "--kv-blocks", blocks, "--events", events, "--quiet",
	      (char *)NULL);
	perror(path);
	_exit(127);
}

/* CPU seconds of the agent's threads. */
struct busy {
	double agent, io;
};

static double thread_busy(pid_t pid, const char *tid, char comm[32])
{
	unsigned long long ns = 0;
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, tid);
	f = fopen(path, "r");
	if (f == NULL || fgets(comm, 32, f) == NULL)
		comm[0] = '\0';
	if (f != NULL)
		fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid, tid);
	f = fopen(path, "r");
	if (f == NULL || fscanf(f, "%llu", &ns) != 1)
		ns = 0;
	if (f != NULL)
		fclose(f);
	return 1e-9 * (double)ns;
}

static struct busy read_busy(pid_t pid)
{
	struct busy b = {0};
	char path[32], comm[32];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	while (d != NULL && (e = readdir(d)) != NULL) {
		double s;

		if (e->d_name[0] == '.')
			continue;
		s = thread_busy(pid, e->d_name, comm);
		if (atoi(e->d_name) == pid)
			b.agent += s;
		else if (strncmp(comm, "ZMQ", 3) == 0)
			b.io += s;
	}
	if (d != NULL)
		closedir(d);
	return b;
}

/* Measure and print one row. @return 0 if all blocks arrived. */
static int measure_case(const char *name, const char *transport, struct publisher *p, pid_t pid,
			double seconds)
{
	struct busy before, after;
	uint64_t passes = 0;
	double begin, took;
	bool all, right;
	char word[8];

	if (zmq_recv(p->socket, word, sizeof(word), 0) < 1) /* the agent has subscribed */
		return 1;
	all = publish_pass(p) && wait_for(p, 0); /* warm */
	before = read_busy(pid);
	begin = read_clock();
	while (all && read_clock() - begin < seconds) {
		all = publish_pass(p);
		passes++;
	}
	all = all && wait_for(p, 0);
	took = read_clock() - begin;
	after = read_busy(pid);
	after.agent -= before.agent;
	after.io -= before.io;
	router_stop(&router);
	right = all && router.lost == 0 && router.stored == p->passes * made.sum &&
		router.removed == p->passes * made.sum;
	printf("{\"case\": \"%s\", \"work\": \"receive, decode, translate, tell\", \"over\": "
	       "\"%s\", ",
	       name, transport);
	if (right)
		printf("\"events_per_cpu_s\": %.0f, \"blocks_per_cpu_s\": %.0f, \"events_per_s\": "
		       "%.0f, \"cpu_share\": %.2f, \"io_cpu_share\": %.2f, \"mb_per_s\": %.0f, ",
		       (double)(passes * made.events) / after.agent,
		       (double)(passes * made.blocks * 2) / after.agent,
		       (double)(passes * made.events) / took, after.agent / took, after.io / took,
		       1e-6 * (double)(passes * made.bytes) / took);
	printf("\"checksum\": \"%016" PRIx64 "\", \"lost\": %" PRIu64 ", \"right\": %s}\n",
	       made.sum, (uint64_t)router.lost, right ? "true" : "false");
	fflush(stdout);
	return !right;
}

int main(int argc, char **argv)
{
	struct publisher p = {.window = argc > 5 ? strtoull(argv[5], NULL, 0) : 20000};
	const struct batches_case *c = argc > 2 ? &batches_cases[atoi(argv[2]) == 1] : NULL;
	const double seconds = argc > 4 ? atof(argv[4]) : 3;
	int listener, bad = 1, status;
	unsigned int port;
	pid_t pid;

	if (argc < 4) {
		fprintf(stderr, "usage: %s KVROUTE-AGENT CASE(0, 1) ENDPOINT [SECONDS [WINDOW]]\n",
			argv[0]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	batches_make(&made, c);
	port = http_start(&listener);
	if (port == 0 || router_open(&router) < 0 || publisher_open(&p, argv[3]) < 0)
		return 1;
	router_start(&router);
	pid = start_agent(argv[1], port, p.endpoint);
	if (pid > 0)
		bad = measure_case(c->name, strncmp(argv[3], "ipc", 3) == 0 ? "ipc" : "tcp", &p,
				   pid, seconds);
	if (pid > 0 && waitpid(pid, &status, WNOHANG) == 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	return bad;
}
