/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Before an lcore sleeps on a memif ring, it first requests a wake-up and then checks the ring, so
 * that a frame is either seen or its sender sees the request.
 */
#include "kvr_test.h"
#include "port_pvt.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT   192u /* offset of the ring in its file */
#define HEAD (AT + 6)
#define TAIL (AT + 64)

static struct kvr_port_queue queue;
static struct kvr_port port;
static struct kvr_port_ring_at at = {.offset = AT};
static uint8_t *file;
static unsigned int passes;

static void count_pass(void *arg)
{
	(void)arg;
	passes++;
}

static uint16_t get_u16(uint32_t where)
{
	uint16_t v;

	memcpy(&v, file + where, sizeof(v));
	return v;
}

static void put_u16_at(uint32_t where, uint16_t v)
{
	memcpy(file + where, &v, sizeof(v));
}

#define FLAGS (get_u16(AT + 4)) /* 1 = no wake-up requested */

static uint64_t has_event(void)
{
	uint64_t n = 0;

	return read(at.event, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void begin_wait(void)
{
	at.region = memfd_create("ring", 0);
	at.event = eventfd(0, EFD_NONBLOCK);
	CU_ASSERT_FATAL(at.region >= 0 && at.event >= 0 && ftruncate(at.region, 4096) == 0);
	file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, at.region, 0);
	CU_ASSERT_FATAL(file != MAP_FAILED);
	port = (struct kvr_port){.hw = 1, .lcores = 1, .wakes = true, .queues = &queue};
	queue = (struct kvr_port_queue){.port = &port};
	atomic_init(&port.rx_on, 1);
	put_u16_at(AT + 4, 1);
	passes = 0;
	kvr_port__wait_ring(&port, 0, &at, count_pass, NULL);
}

static void end_wait(void)
{
	kvr_port__wait_stop(&port);
	munmap(file, 4096);
	close(at.region);
	close(at.event);
}

static void an_empty_ring_requests_a_wakeup(void)
{
	const uint64_t one = 1;
	int fd = -1;

	begin_wait();
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), 0);
	CU_ASSERT_EQUAL(FLAGS, 0);
	/* The peer's file, through a descriptor of the test. */
	CU_ASSERT(fd >= 0 && fd != at.event);
	CU_ASSERT_EQUAL(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
	CU_ASSERT_EQUAL(has_event(), 1);
	kvr_port_wait_disarm(&queue);
	CU_ASSERT_EQUAL(FLAGS, 1);
	end_wait();
}

/* A frame that arrived before the request: its sender did not write to the eventfd. */
static void a_frame_before_the_request_is_seen(void)
{
	int fd = -1;

	begin_wait();
	put_u16_at(HEAD, 0); /* indices wrap around */
	put_u16_at(TAIL, 65535);
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), -EAGAIN);
	CU_ASSERT_EQUAL(fd, -1);
	CU_ASSERT_EQUAL(FLAGS, 1);
	put_u16_at(TAIL, 0);
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), 0);
	CU_ASSERT_EQUAL(FLAGS, 0);
	end_wait();
}

/* An old event is not mistaken for a new one. */
static void old_events_are_cleared(void)
{
	const uint64_t three = 3;
	int fd;

	begin_wait();
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), 0);
	CU_ASSERT_EQUAL(write(at.event, &three, sizeof(three)), (ssize_t)sizeof(three));
	kvr_port_wait_disarm(&queue);
	CU_ASSERT_EQUAL(has_event(), 0);
	kvr_port_wait_disarm(&queue); /* nothing to read: does not block */
	end_wait();
}

static void without_a_peer_nothing_arrives(void)
{
	int fd = 7;

	begin_wait();
	CU_ASSERT_EQUAL(passes, 0); /* no ring before */
	kvr_port__wait_ring(&port, 0, NULL, count_pass, NULL);
	CU_ASSERT_EQUAL(passes, 1); /* not read any more when it is freed */
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), 0);
	CU_ASSERT_EQUAL(fd, -1);
	kvr_port_wait_disarm(&queue);
	port.wakes = false; /* a device without wake-up */
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), -ENOTSUP);
	/* A queue without a ring of the peer: other lcores receive. */
	atomic_store(&port.rx_on, 0);
	CU_ASSERT_EQUAL(kvr_port_wait_arm(&queue, &fd), 0);
	end_wait();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_empty_ring_requests_a_wakeup),
			       KVR_CASE(a_frame_before_the_request_is_seen),
			       KVR_CASE(old_events_are_cleared),
			       KVR_CASE(without_a_peer_nothing_arrives), CU_TEST_INFO_NULL};

	return kvr_test_run("wait", tests);
}
