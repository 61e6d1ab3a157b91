"""The feed over REST: as a page that may be held, or as a stream for who takes server-sent events."""

from outlast.gateway.exchange import Answer, Exchange, StreamAnswer, answer
from outlast.gateway.following import feed_stream
from outlast.gateway.given import FeedOut
from outlast.gateway.giving import feed_event_out
from outlast.gateway.pages import with_link
from outlast.gateway.taken import FeedQuery, wait_of
from outlast.gateway.watching import EVENT_STREAM


async def feed(exchange: Exchange) -> Answer | StreamAnswer:
    """What was committed, in order, behind ``after``."""
    asked = exchange.asked(FeedQuery)
    if EVENT_STREAM in exchange.headers.get("accept", ""):
        return await feed_stream(exchange, after=asked.after)
    feeds = exchange.engine.feeds
    page = await exchange.unless_gone(
        feeds.wait(exchange.namespace, after=asked.after, limit=asked.limit, wait=wait_of(asked.wait))
    )
    events = exchange.opener.open(page).events
    body = FeedOut(items=tuple(feed_event_out(event) for event in events), next=page.next, more=page.more)
    return with_link(exchange, answer(body), after=page.next)
