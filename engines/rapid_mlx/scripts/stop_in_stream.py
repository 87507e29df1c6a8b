"""rapid-mlx 0.16.10: a stream shows the begin of a stop string of several tokens.

rapid_mlx/scheduler.py:10960 looks for stop strings in all of the text, but what came with
earlier tokens has been sent by then: nothing that may become a stop string is held back. In one
piece it is cut off.
"""

from tiny_server import asked, prompt, served, verdict

with served() as client:
    text = prompt(10, seed=1)
    stop = [" ".join(asked(client, text)[0].split()[4:6])]
    whole, streamed = (asked(client, text, stop=stop, stream=on)[0] for on in (False, True))
verdict("the text of a stream that ends at a stop string of two tokens", whole, streamed)
