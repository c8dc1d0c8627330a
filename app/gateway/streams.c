/* SPDX-License-Identifier: BSD-3-Clause */
#include "streams.h"

#include <dlfcn.h>
#include <stdlib.h>

/* clang-format off: the second takes the first for granted */
#include <h2o/http2.h>
#include <h2o/http2_internal.h>
/* clang-format on */

struct gw_stream {
	TAILQ_ENTRY(gw_stream) link;
	struct gw_thread *thread;
	h2o_req_t *req;
	uint64_t since_ms;
	size_t had; /* bytes of its body at that time */
	bool waits; /* it is in the list */
};

typedef ssize_t decode_fn(h2o_http2_frame_t *frame, const uint8_t *src, size_t len,
			  const h2o_http2_settings_t *host_settings, const char **err_desc);

static h2o_http2_stream_t *stream_of(h2o_req_t *req)
{
	return H2O_STRUCT_FROM_MEMBER(h2o_http2_stream_t, req, req);
}

static void add_stream(struct gw_stream *stream)
{
	stream->since_ms = gw_now_ms();
	stream->had = stream_of(stream->req)->_req_body->size;
	stream->waits = true;
	TAILQ_INSERT_TAIL(&stream->thread->streams, stream, link);
}

static void remove_stream(struct gw_stream *stream)
{
	if (stream->waits)
		TAILQ_REMOVE(&stream->thread->streams, stream, link);
	stream->waits = false;
}

static void on_dispose(void *stream)
{
	remove_stream(stream);
}

void gw_stream_comes(h2o_req_t *req)
{
	struct gw_stream *stream;

	if (stream_of(req)->_req_body == NULL) /* no flow control window */
		return;
	stream = h2o_mem_alloc_shared(&req->pool, sizeof(*stream), on_dispose);
	*stream = (struct gw_stream){
		.thread = H2O_STRUCT_FROM_MEMBER(struct gw_thread, ctx, req->conn->ctx),
		.req = req};
	add_stream(stream);
}

/* Answers as libh2o does before a body has arrived. Later data reset the stream. */
static void answer_timeout(struct gw_thread *thread, h2o_req_t *req)
{
	h2o_http2_stream_t *stream = stream_of(req);
	h2o_http2_conn_t *conn = (h2o_http2_conn_t *)req->conn;

	if (conn->state >= H2O_HTTP2_CONN_STATE_IS_CLOSING)
		return;
	GW_COUNT(thread, GW_SLOW_REQUESTS);
	h2o_buffer_dispose(&stream->_req_body);
	h2o_http2_stream_set_state(conn, stream, H2O_HTTP2_STREAM_STATE_REQ_PENDING);
	h2o_http2_stream_set_state(conn, stream, H2O_HTTP2_STREAM_STATE_SEND_HEADERS);
	thread->touched = true;
	/* No handler has it yet: only the status is used (serve.c). */
	h2o_send_error_generic(req, 408, "Request Timeout", "", 0);
}

void gw_streams_turn(struct gw_thread *thread)
{
	const uint64_t now = gw_now_ms();
	struct gw_stream *s;

	while ((s = TAILQ_FIRST(&thread->streams)) != NULL &&
	       s->since_ms + thread->opt->header_ms <= now) {
		const h2o_http2_stream_t *stream = stream_of(s->req);

		remove_stream(s);
		if (stream->state != H2O_HTTP2_STREAM_STATE_RECV_BODY)
			continue;
		if (stream->_req_body->size - s->had >= gw_grows(thread->opt))
			add_stream(s);
		else
			answer_timeout(thread, s->req);
	}
}

size_t gw_stream_left(h2o_req_t *req)
{
	const h2o_http2_stream_t *stream = stream_of(req);
	size_t n = 0;

	for (size_t i = 0; i < stream->_data.size; i++)
		n += stream->_data.entries[i].len;
	return n;
}

void gw_stream_reset(h2o_req_t *req)
{
	h2o_http2_stream_t *stream = stream_of(req);
	h2o_http2_conn_t *conn = (h2o_http2_conn_t *)req->conn;

	if (conn->state < H2O_HTTP2_CONN_STATE_IS_CLOSING) {
		h2o_http2_encode_rst_stream_frame(&conn->_write.buf, stream->stream_id,
						  -H2O_HTTP2_ERROR_CANCEL);
		h2o_http2_conn_request_write(conn);
	}
	h2o_http2_stream_reset(conn, stream);
}

/* libh2o prints a line for each frame of unknown kind, and standard error may be a pipe without
 * reader. Such frames must be ignored (RFC 9113, 4.1), like an acknowledgement of settings. */
ssize_t h2o_http2_decode_frame(h2o_http2_frame_t *frame, const uint8_t *src, size_t len,
			       const h2o_http2_settings_t *host_settings, const char **err_desc)
{
	static __thread decode_fn *fn;
	ssize_t n;

	if (fn == NULL)
		*(void **)&fn = dlsym(RTLD_NEXT, "h2o_http2_decode_frame");
	if (fn == NULL)
		abort(); /* cannot happen: libh2o is linked */
	n = fn(frame, src, len, host_settings, err_desc);
	if (n >= 0 && frame->type > H2O_HTTP2_FRAME_TYPE_CONTINUATION)
		*frame = (h2o_http2_frame_t){.type = H2O_HTTP2_FRAME_TYPE_SETTINGS,
					     .flags = H2O_HTTP2_FRAME_FLAG_ACK,
					     .payload = frame->payload};
	return n;
}
