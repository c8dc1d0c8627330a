/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time limits of requests at the engine, on a loopback connection. The agent's clock is a variable
 * of this test.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engine.h"
#include "kvr_test.h"

#define SECOND	   UINT64_C(1000000)
#define WAIT_MS	   10000 /* for the kernel; never expires */
#define INACTIVITY 3600u

static struct app app;
static struct app_ask ask;
static int listener, engine;
static size_t content;
static bool takes_content, ended;
static enum app_end end;
static char end_reason[64];

static bool accepts_data(void *arg)
{
	return takes_content;
}

static int on_head(void *arg, const struct kvr_http_head *head)
{
	return 0;
}

static int on_content(void *arg, const char *data, size_t len)
{
	content += len;
	return 0;
}

static void on_ended(void *arg, enum app_end how, const char *why)
{
	ended = true;
	end = how;
	snprintf(end_reason, sizeof(end_reason), "%s", why != NULL ? why : "");
}

static const struct app_ask_ops ask_ops = {.takes = accepts_data,
					   .answer = {.head = on_head, .content = on_content},
					   .ended = on_ended};

/* Wait for one event of the engine's connection and handle it, then apply the time limits. */
static void run_loop_once(int timeout_ms)
{
	struct epoll_event event;

	if (epoll_wait(app.epoll, &event, 1, timeout_ms) > 0)
		app_engine_ready(&app, (uint32_t)event.data.u64, event.events);
	app_engine_turn(&app);
}

static void send_answer(const char *text)
{
	CU_ASSERT_EQUAL(send(engine, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void start_answer(uint32_t inactivity_s)
{
	static char head[] = "GET / HTTP/1.1\r\n\r\n";
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	memset(&app, 0, sizeof(app));
	content = 0;
	ended = false;
	takes_content = true;
	app.now_us = SECOND;
	app.o.max_requests = 8;
	app.o.connect_ms = 1000;
	app.o.inactivity_s = inactivity_s;
	app.epoll = epoll_create1(EPOLL_CLOEXEC);
	CU_ASSERT_EQUAL_FATAL(app_engine_init(&app), 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, 8), 0);
	getsockname(listener, (struct sockaddr *)&at, &len);
	app_engine_set_address(&app, (struct sockaddr *)&at, len);
	ask = (struct app_ask){.ops = &ask_ops, .head = head, .head_len = sizeof(head) - 1};
	app_engine_send(&app, &ask);
	engine = accept(listener, NULL, NULL);
	run_loop_once(WAIT_MS); /* connected: the request is sent */
	send_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	run_loop_once(WAIT_MS);
	CU_ASSERT_FALSE_FATAL(ended);
}

static void stop_answer(void)
{
	app_engine_fini(&app);
	close(engine);
	close(listener);
	close(app.epoll);
}

static void an_answer_takes_two_hours_if_the_engine_keeps_sending(void)
{
	start_answer(INACTIVITY);
	for (unsigned int minutes = 0; minutes < 120; minutes += 30) {
		app.now_us += 30 * 60 * SECOND;
		run_loop_once(0);
		send_answer("1\r\nx\r\n");
		run_loop_once(WAIT_MS);
	}
	CU_ASSERT_FALSE(ended);
	send_answer("0\r\n\r\n");
	run_loop_once(WAIT_MS);
	CU_ASSERT_TRUE(ended && end == APP_END_WELL);
	CU_ASSERT_EQUAL(content, 4);
	stop_answer();
}

static void an_engine_that_sends_nothing_for_the_limit_ends_the_request(void)
{
	start_answer(INACTIVITY);
	CU_ASSERT_EQUAL(app_engine_due_us(&app), app.now_us + INACTIVITY * SECOND);
	app.now_us += INACTIVITY * SECOND - 1;
	run_loop_once(0);
	CU_ASSERT_FALSE(ended);
	app.now_us++;
	run_loop_once(0);
	CU_ASSERT_TRUE(ended && end == APP_END_LATE);
	CU_ASSERT_STRING_EQUAL(end_reason, "no data for 3600 s");
	stop_answer();
}

static void no_limit_applies_without_an_inactivity_limit(void)
{
	start_answer(0);
	CU_ASSERT_EQUAL(app_engine_due_us(&app), UINT64_MAX);
	app.now_us += 100 * 86400 * SECOND;
	run_loop_once(0);
	CU_ASSERT_FALSE(ended);
	stop_answer();
}

static void a_paused_answer_is_not_the_inactivity_of_the_engine(void)
{
	start_answer(INACTIVITY);
	takes_content = false;
	send_answer("1\r\nx\r\n");
	run_loop_once(WAIT_MS);
	CU_ASSERT_EQUAL(app_engine_due_us(&app), UINT64_MAX);
	app.now_us += 2 * INACTIVITY * SECOND;
	run_loop_once(0);
	CU_ASSERT_FALSE_FATAL(ended);
	takes_content = true;
	app_engine_resume(&app, &ask);
	run_loop_once(WAIT_MS);
	CU_ASSERT_FALSE(ended);
	CU_ASSERT_EQUAL(content, 1);
	app.now_us += INACTIVITY * SECOND;
	run_loop_once(0);
	CU_ASSERT_TRUE(ended && end == APP_END_LATE);
	stop_answer();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(an_answer_takes_two_hours_if_the_engine_keeps_sending),
		KVR_CASE(an_engine_that_sends_nothing_for_the_limit_ends_the_request),
		KVR_CASE(no_limit_applies_without_an_inactivity_limit),
		KVR_CASE(a_paused_answer_is_not_the_inactivity_of_the_engine),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("agent engine", tests);
}
