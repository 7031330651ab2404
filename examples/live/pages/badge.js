// How a subscription fares, in the corner of a page.

const WORDS = { idle: 'idle', connecting: 'connecting…', waiting: 'reconnecting…', closed: 'closed' };

export function showState(subscription, element) {
  const show = () => {
    element.dataset.state = subscription.state;
    element.textContent = WORDS[subscription.state] ?? `live by ${subscription.transport}`;
  };
  subscription.on('state', show);
  show();
}
