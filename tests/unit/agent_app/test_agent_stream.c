/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The event stream of one rank with a ZMQ publisher and a replay socket of this test. The loop is
 * that of the agent: wait for the epoll set, then run the streams. Iterations are counted, not
 * timed.
 */
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <zmq.h>

#include "app.h"
#include "kvr_test.h"
#include "stream.h"

#define WAIT_MS 10000 /* for the I/O threads of libzmq; never expires */
#define POLLS	1000u

static struct app app;
static void *context, *publisher, *router;

/* Bind a socket to a free port of loopback. @p endpoint receives its address. */
static void *bind_socket(int type, char *endpoint, size_t len)
{
	void *socket = zmq_socket(context, type);
	const int linger = 0;

	CU_ASSERT_EQUAL_FATAL(zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger)), 0);
	CU_ASSERT_EQUAL_FATAL(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
	CU_ASSERT_EQUAL_FATAL(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &len), 0);
	return socket;
}

static void start_streams(void)
{
	memset(&app, 0, sizeof(app));
	context = zmq_ctx_new();
	app.zmq = zmq_ctx_new();
	app.epoll = epoll_create1(EPOLL_CLOEXEC);
	app.now_us = 1000000;
	app.o.ranks = 1;
	app.o.kv_blocks = 64;
	app.o.audit_s = 10;
	app.o.quiet = true;
	app.block_size = 16;
	publisher = bind_socket(ZMQ_PUB, app.o.events, sizeof(app.o.events));
	router = bind_socket(ZMQ_ROUTER, app.o.replay, sizeof(app.o.replay));
	app.given = app.o;
	CU_ASSERT_EQUAL_FATAL(app_streams_start(&app), 0);
}

static void stop_streams(void)
{
	app_streams_stop(&app);
	if (publisher != NULL)
		zmq_close(publisher);
	zmq_close(router);
	zmq_ctx_term(app.zmq);
	zmq_ctx_term(context);
	close(app.epoll);
}

/* One iteration of the agent's loop. @return true: a descriptor was readable. */
static bool run_loop_once(int timeout_ms)
{
	struct epoll_event event;
	const int n = epoll_wait(app.epoll, &event, 1, timeout_ms);

	app_streams_turn(&app);
	return n > 0;
}

/* Run the loop until the replay socket receives a question; read its identity, and skip the
 * rest. */
static void receive_question(char *identity, size_t *len)
{
	zmq_pollitem_t item = {.socket = router, .events = ZMQ_POLLIN};
	char rest[16];
	int more = 1;
	size_t size = sizeof(more);

	for (unsigned int i = 0; i < POLLS && zmq_poll(&item, 1, 0) == 0; i++)
		run_loop_once(10);
	*len = (size_t)zmq_recv(router, identity, 64, ZMQ_DONTWAIT);
	CU_ASSERT_TRUE_FATAL(*len <= 64);
	while (zmq_getsockopt(router, ZMQ_RCVMORE, &more, &size) == 0 && more != 0)
		zmq_recv(router, rest, sizeof(rest), 0);
}

/* Answer with a message that is not part of a replay. */
static void send_wrong_answer(const char *identity, size_t len)
{
	zmq_send(router, identity, len, ZMQ_SNDMORE);
	zmq_send(router, "", 0, ZMQ_SNDMORE);
	zmq_send(router, "short", 5, ZMQ_SNDMORE);
	CU_ASSERT_EQUAL(zmq_send(router, "", 0, 0), 0);
}

/* Wait until libzmq has work for the replay socket, as after its I/O thread opened it. */
static void wait_for_dealer(void)
{
	struct pollfd p = {.events = POLLIN};
	size_t len = sizeof(p.fd);

	CU_ASSERT_EQUAL_FATAL(zmq_getsockopt(app.streams[0]->dealer, ZMQ_FD, &p.fd, &len), 0);
	CU_ASSERT_EQUAL(poll(&p, 1, WAIT_MS), 1);
}

/* Count the polls, of POLLS, that found a readable descriptor. */
static unsigned int count_busy_iterations(void)
{
	unsigned int busy = 0;

	for (unsigned int i = 0; i < POLLS; i++)
		busy += run_loop_once(0);
	return busy;
}

static void an_unused_replay_socket_does_not_keep_the_loop_busy(void)
{
	start_streams();
	/* Without an engine no question is asked. */
	zmq_close(publisher);
	publisher = NULL;
	wait_for_dealer();
	CU_ASSERT_TRUE(count_busy_iterations() < POLLS / 10);
	stop_streams();
}

static void a_replay_socket_that_was_opened_again_does_not_keep_the_loop_busy(void)
{
	char identity[64];
	size_t len;

	start_streams();
	receive_question(identity, &len);
	send_wrong_answer(identity, len);
	for (unsigned int i = 0; i < POLLS && kvr_cell_get(&app.st.batches_bad) == 0; i++)
		run_loop_once(10);
	CU_ASSERT_EQUAL(kvr_cell_get(&app.st.batches_bad), 1);
	CU_ASSERT_TRUE(count_busy_iterations() < POLLS / 10);
	stop_streams();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(an_unused_replay_socket_does_not_keep_the_loop_busy),
		KVR_CASE(a_replay_socket_that_was_opened_again_does_not_keep_the_loop_busy),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("agent stream", tests);
}
