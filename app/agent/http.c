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
	struct app *app = user;
	const uint32_t events = ((what & CURL_POLL_IN) != 0 ? EPOLLIN : 0u) |
				((what & CURL_POLL_OUT) != 0 ? EPOLLOUT : 0u);

	if (what == CURL_POLL_REMOVE) {
		app_watch(app, EPOLL_CTL_DEL, fd, APP_FD_CURL, (uint32_t)fd, 0);
		return 0;
	}
	/* A descriptor that curl knows may have been closed and opened again. A transfer that epoll
	 * rejects ends by its time limit, because an error here would end `multi`. */
	if (app_watch(app, EPOLL_CTL_MOD, fd, APP_FD_CURL, (uint32_t)fd, events) == -ENOENT)
		app_watch(app, EPOLL_CTL_ADD, fd, APP_FD_CURL, (uint32_t)fd, events);
	return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
	struct app *app = user;

	app->curl_due_us = ms < 0 ? UINT64_MAX : app->now_us + (uint64_t)ms * 1000;
	return 0;
}

int app_http_init(struct app *app)
{
	TAILQ_INIT(&app->dirty);
	TAILQ_INIT(&app->heads);
	TAILQ_INIT(&app->trials);
	TAILQ_INIT(&app->blocked);
	app->curl_due_us = UINT64_MAX;
	app->buckets = calloc(BUCKETS, sizeof(app->buckets[0]));
	if (app->buckets == NULL || curl_global_init(CURL_GLOBAL_ALL) != 0)
		return -ENOMEM;
	app->multi = curl_multi_init();
	if (app->multi == NULL)
		return -ENOMEM;
	curl_multi_setopt(app->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(app->multi, CURLMOPT_SOCKETDATA, app);
	curl_multi_setopt(app->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(app->multi, CURLMOPT_TIMERDATA, app);
	return app_engine_init(app);
}

void app_http_fini(struct app *app)
{
	app_canary_stop(app);
	app_probe_fini(&app->health);
	app_probe_fini(&app->metrics);
	app_describe_fini(app);
	app_engine_fini(app);
	if (app->multi != NULL)
		curl_multi_cleanup(app->multi);
	curl_global_cleanup();
	free(app->buckets);
}

void app_http_ready(struct app *app, int fd, uint32_t events)
{
	const int mask = ((events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
			 ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
			 ((events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
	int running;

	curl_multi_socket_action(app->multi, fd, mask, &running);
}

static void on_transfer_ended(struct app *app, const CURLMsg *m)
{
	enum app_transfer *kind = NULL;

	curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&kind);
	if (*kind == APP_CANARY)
		app_canary_ended(app, m->data.result);
	else if (*kind == APP_PROBE)
		app_probe_ended(app, (struct app_probe *)kind, m->data.result);
	else if (app_describe_ended(app, m->data.result))
		app_probe_metrics(app);
}

void app_http_turn(struct app *app)
{
	int running, left;
	CURLMsg *m;

	if (app->now_us >= app->curl_due_us) {
		app->curl_due_us = UINT64_MAX;
		curl_multi_socket_action(app->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	while ((m = curl_multi_info_read(app->multi, &left)) != NULL)
		if (m->msg == CURLMSG_DONE)
			on_transfer_ended(app, m);
}
