/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl's multi interface on the agent's epoll set. */
#include "canary.h"
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define BUCKETS 4096u

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
	struct app *a = user;
	const uint32_t events = ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0u) |
				((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0u);

	if (what == CURL_POLL_REMOVE) {
		app_watch(a, EPOLL_CTL_DEL, fd, APP_FD_CURL, (uint32_t)fd, 0);
		return 0;
	}
	/* A descriptor that curl knows may have been closed and opened again. A transfer that epoll
	 * rejects ends by its time limit, because an error here would end `multi`. */
	if (app_watch(a, EPOLL_CTL_MOD, fd, APP_FD_CURL, (uint32_t)fd, events) == -ENOENT)
		app_watch(a, EPOLL_CTL_ADD, fd, APP_FD_CURL, (uint32_t)fd, events);
	return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
	struct app *a = user;

	a->curl_due_us = ms < 0 ? UINT64_MAX : a->now_us + (uint64_t)ms * 1000;
	return 0;
}

int app_http_init(struct app *a)
{
	TAILQ_INIT(&a->dirty);
	TAILQ_INIT(&a->heads);
	TAILQ_INIT(&a->trials);
	TAILQ_INIT(&a->blocked);
	a->curl_due_us = UINT64_MAX;
	a->buckets = calloc(BUCKETS, sizeof(a->buckets[0]));
	if (a->buckets == NULL || curl_global_init(CURL_GLOBAL_ALL) != 0)
		return -ENOMEM;
	a->multi = curl_multi_init();
	if (a->multi == NULL)
		return -ENOMEM;
	curl_multi_setopt(a->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(a->multi, CURLMOPT_SOCKETDATA, a);
	curl_multi_setopt(a->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(a->multi, CURLMOPT_TIMERDATA, a);
	return app_engine_init(a);
}

void app_http_fini(struct app *a)
{
	app_canary_stop(a);
	app_probe_fini(&a->health);
	app_probe_fini(&a->metrics);
	app_describe_fini(a);
	app_engine_fini(a);
	if (a->multi != NULL)
		curl_multi_cleanup(a->multi);
	curl_global_cleanup();
	free(a->buckets);
}

void app_http_ready(struct app *a, int fd, uint32_t events)
{
	const int mask = ((events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
			 ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
			 ((events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
	int running;

	curl_multi_socket_action(a->multi, fd, mask, &running);
}

static void on_transfer_ended(struct app *a, const CURLMsg *m)
{
	enum app_transfer *kind = NULL;

	curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&kind);
	if (*kind == APP_CANARY)
		app_canary_ended(a, m->data.result);
	else if (*kind == APP_PROBE)
		app_probe_ended(a, (struct app_probe *)kind, m->data.result);
	else if (app_describe_ended(a, m->data.result))
		app_probe_metrics(a);
}

void app_http_turn(struct app *a)
{
	int running, left;
	CURLMsg *m;

	if (a->now_us >= a->curl_due_us) {
		a->curl_due_us = UINT64_MAX;
		curl_multi_socket_action(a->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	while ((m = curl_multi_info_read(a->multi, &left)) != NULL)
		if (m->msg == CURLMSG_DONE)
			on_transfer_ended(a, m);
}
