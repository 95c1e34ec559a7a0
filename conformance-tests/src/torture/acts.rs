//! What a contender does: all the ways in which a program takes a lock, holds it, and gives it up.

use std::time::Duration;

use tokio::time::sleep;

use super::TTLS;
use super::hold::{Request, Taken, Way};
use super::worker::Hand;
use crate::Stop;

/// Takes the shared names in turn, for ever.
pub(super) async fn contend(mut hand: Hand) -> Result<(), Stop> {
    loop {
        let request = hand.choose();
        let renewed = request.renewed;
        match hand.ask(request).await {
            Ok(taken) => hand.hold(taken, renewed).await?,
            Err(_) => sleep(hand.dice.span(1, 30)).await,
        }
    }
}

impl Hand {
    fn choose(&mut self) -> Request {
        let name = self.names[self.dice.roll(self.names.len() as u64) as usize].clone();
        let ttl = TTLS[self.dice.roll(TTLS.len() as u64) as usize];
        let mut request = Request { name, ttl, limit: None, renewed: !self.dice.chance(150), cancel: None };
        match self.dice.roll(100) {
            0..60 => request.limit = Some(self.dice.span(1_000, 8_000)),
            60..70 => request.limit = Some(self.dice.span(1, 300)),
            70..85 => {
                request.limit = Some(Duration::from_secs(8));
                request.cancel = Some(self.dice.span(0, 400));
            }
            _ => {}
        }
        request
    }

    async fn hold(&mut self, taken: Taken, renewed: bool) -> Result<(), Stop> {
        let ttl = taken.guard.ttl();
        self.write(&taken).await?;
        // Mostly short, so that the names change hands often; now and then for longer than the TTL.
        let stay = match self.dice.roll(1_000) {
            0..800 => self.dice.span(0, 4),
            800..990 => self.dice.span(5, 120),
            _ if renewed => ttl + self.dice.span(100, 600),
            _ => ttl / 2,
        };
        self.stay(&taken, stay / 2).await;
        match self.dice.roll(100) {
            0..6 => self.renew(&taken).await,
            6..12 => {
                let name = taken.guard.name().as_str().to_owned();
                self.inspect(&name, Some(&taken)).await;
            }
            // As often as a heart beats: a renewal sets the remaining time, and adds nothing.
            12..14 => {
                for _ in 0..4 {
                    self.renew(&taken).await;
                }
            }
            _ => {}
        }
        if self.stay(&taken, stay / 2).await && self.dice.chance(300) {
            self.write(&taken).await?;
        }
        let way = match self.dice.roll(1_000) {
            0..15 if !renewed => Way::Lapse,
            15..30 if !renewed => Way::Mark,
            0..3 => Way::Mark,
            30..400 => Way::Drop,
            _ => Way::Release,
        };
        self.end(taken, way).await;
        if self.dice.chance(50) {
            let name = self.names[self.dice.roll(self.names.len() as u64) as usize].clone();
            self.inspect(&name, None).await;
        }
        sleep(self.dice.span(0, 10)).await;
        Ok(())
    }
}
